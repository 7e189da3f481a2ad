"""What the keeper of a run tells the runner: which ranks were lost while the run went on, and how it ended.

Who writes: the keeper alone; a line of `lost.jsonl` for each lost rank, at once, and `outcome.json` when the run is
over. Who reads: the runner, the first while the run goes on, both after the keeper's end. Nothing blocks: a line counts
when it is whole, and the outcome appears by a rename, since a keeper can be killed too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.processes.told import Told

OUTCOME_FILE = "outcome.json"
LOST_FILE = "lost.jsonl"
CONSEQUENCE = re.compile("Connection (closed|reset) by peer")
"""What gloo says to a rank when another one is gone."""


def is_consequence(error: str | None) -> bool:
    """Whether a rank that says so has only heard of another's end."""
    return bool(CONSEQUENCE.search(error or ""))


@dataclass(frozen=True, kw_only=True, slots=True)
class LostRank:
    """A rank that ended before its time, while others went on."""

    rank: int
    how: str
    """`was killed by SIGKILL`, `exited with 3`, or what it raised."""
    iteration: int
    """The iteration that it was in, from 0."""

    def __str__(self) -> str:
        return f"rank {self.rank} {self.how} in iteration {self.iteration}; the others went on"

    def leave(self, folder: Path) -> None:
        """Adds a line to the file of lost ranks."""
        with (folder / LOST_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self)) + "\n")


def read_lost(folder: Path) -> tuple[LostRank, ...]:
    """The ranks that the run in `folder` has lost so far, in the order in which they were lost."""
    path = folder / LOST_FILE
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return tuple(LostRank(**json.loads(line)) for line in lines if line.endswith("\n"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    status: str
    """`finished`, `failed`, `timed-out`, `interrupted`, or `ended`: by the harness, which then records no run."""
    reason: str | None = None
    traceback: str | None = None
    lost: tuple[LostRank, ...] = ()
    """Ranks that ended before their time, and that the others went on without."""

    @property
    def is_orderly(self) -> bool:
        """Whether all ranks ended by themselves, in agreement."""
        return self.status in {"finished", "interrupted"}

    def leave(self, folder: Path) -> None:
        """Writes it for the runner."""
        unfinished = folder / f".{OUTCOME_FILE}"
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        unfinished.rename(folder / OUTCOME_FILE)

    @classmethod
    def read(cls, folder: Path) -> Outcome | None:
        """What the keeper left; None when it was killed before it could."""
        path = folder / OUTCOME_FILE
        if not path.exists():
            return None
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**fields, "lost": tuple(LostRank(**one) for one in fields["lost"])})


def outcome_of(told: Sequence[Told]) -> Outcome:
    """How a run ended whose ranks all ended well: finished, unless one of them was told to stop before its time."""
    if not told:
        return Outcome("finished")
    first, *others = sorted(told, key=lambda one: one.iteration)
    also = f"; so {'was' if len(others) == 1 else 'were'} rank {', '.join(str(one.rank) for one in others)}"
    return Outcome("interrupted", f"{first}{also if others else ''}")
