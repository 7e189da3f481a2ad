"""A clone of this repository with commits that change nothing, and commits that make inference slower.

What is slower is `Actor.act`, which every system calls for each batch of observations: by a sleep, by copies of memory,
or by a lock that another thread of the process holds for a while, over and over.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PLACE = Path("systems/engine/workers/inference.py")
LINE = '        with self.apart(), self._device.busy("infer", len(slots)):\n'
"""The first line of `Actor.act`; the slow part comes before it."""
SLOW = {
    "sleep": """
import time

def _slow():
    time.sleep({amount})
""",
    "copy": """
_FROM, _TO = np.ones(2**18, np.uint8), np.ones(2**18, np.uint8)

def _slow():
    for first in range(0, int({amount}), 2**18):
        last = int({amount}) - first
        _TO[:last] = _FROM[:last]
""",
    "lock": """
import threading, time

_LOCK, _HOLDERS = threading.Lock(), []

def _hold():
    while True:
        with _LOCK:
            end = time.perf_counter() + {amount}
            while time.perf_counter() < end:
                pass
        time.sleep(0.01)

def _slow():
    if not _HOLDERS:
        _HOLDERS.append(threading.Thread(target=_hold, daemon=True))
        _HOLDERS[0].start()
    with _LOCK:
        pass
""",
}
"""By name: what an act does in addition, for `amount` seconds or bytes."""
HARMLESS = Path("harmless.txt")
"""What a commit that changes nothing changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slow:
    """How a commit makes acting slower."""

    kind: str
    """One of `SLOW`."""
    amount: float

    def apply(self, tree: Path) -> None:
        """Changes the source in a work tree, in which nothing is slow yet. Raises ValueError where it is unknown."""
        before, line, after = (tree / PLACE).read_text(encoding="utf-8").partition(LINE)
        if not line:
            raise ValueError(f"{PLACE} has no line {LINE.strip()}")
        changed = f"{before}        _slow()\n{line}{after}{SLOW[self.kind].format(amount=self.amount)}"
        (tree / PLACE).write_text(changed, encoding="utf-8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Clone:
    """The clone, at the commit that is measured."""

    folder: Path
    commit: str

    @classmethod
    def make(cls, repository: Path, commit: str, folder: Path) -> Clone:
        """Makes it in a new folder."""
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(repository), str(folder)], check=True)
        clone = cls(folder=folder, commit=commit)
        clone._git("config", "user.name", "nobody")
        clone._git("config", "user.email", "nobody@localhost")
        return clone

    def commits(self, changes: Sequence[Slow | None]) -> list[str]:
        """Commits one after the other on the measured one, each with a harmless change and what is asked for."""
        self._git("checkout", "--quiet", "--force", "--detach", self.commit)
        made = []
        for number, slow in enumerate(changes):
            (self.folder / HARMLESS).write_text(f"{number}\n", encoding="utf-8")
            if slow is not None:
                slow.apply(self.folder)
            self._git("add", "--all")
            self._git("commit", "--quiet", "--message", f"commit {number}")
            made.append(self._git("rev-parse", "HEAD"))
        self._git("checkout", "--quiet", "--detach", self.commit)
        return made

    def _git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(self.folder), *words], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()
