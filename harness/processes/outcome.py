"""What the keeper of a run tells the runner: which ranks were lost while the run went on, and how it ended.

Who writes: only the keeper. It adds a line to `lost.jsonl` as soon as a rank is lost, and writes `outcome.json` when
the run is over. Who reads: the runner reads `lost.jsonl` while the run goes on, and both files after the keeper's end.
Nothing blocks. A keeper can be killed too, so a line counts only when it is whole, and a rename publishes the outcome.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rlbench.harness.processes.told import Told

OUTCOME_FILE = "outcome.json"
LOST_FILE = "lost.jsonl"
CONSEQUENCE = re.compile("Connection (closed|reset) by peer")
"""Gloo's error on a rank when another rank is gone."""


def is_consequence(error: str | None) -> bool:
    """Whether a rank's error only reports the end of another rank."""
    return bool(CONSEQUENCE.search(error or ""))


@dataclass(frozen=True, kw_only=True, slots=True)
class LostRank:
    """A rank that ended early while the others went on."""

    rank: int
    how: str
    """`was killed by SIGKILL`, `exited with 3`, or the error that it raised."""
    iteration: int
    """The iteration in which it ended, from 0."""

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
    """`finished`, `failed`, `timed-out`, `interrupted`, or `ended` (by the harness, which then records no run)."""
    reason: str | None = None
    traceback: str | None = None
    lost: tuple[LostRank, ...] = ()
    """Ranks that ended early, while the others went on."""

    @property
    def is_orderly(self) -> bool:
        """Whether all ranks ended by themselves, in agreement."""
        return self.status in {"finished", "interrupted"}

    def leave(self, folder: Path) -> None:
        """Writes the outcome for the runner."""
        unfinished = folder / f".{OUTCOME_FILE}"
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        unfinished.rename(folder / OUTCOME_FILE)

    @classmethod
    def read(cls, folder: Path) -> Outcome | None:
        """Reads the keeper's outcome; None if the keeper was killed before it wrote one."""
        path = folder / OUTCOME_FILE
        if not path.exists():
            return None
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**fields, "lost": tuple(LostRank(**one) for one in fields["lost"])})


def outcome_of(told: Sequence[Told]) -> Outcome:
    """The outcome when all ranks ended well: interrupted if one of them was told to stop early, else finished."""
    if not told:
        return Outcome("finished")
    first, *others = sorted(told, key=lambda one: one.iteration)
    also = f"; so {'was' if len(others) == 1 else 'were'} rank {', '.join(str(one.rank) for one in others)}"
    return Outcome("interrupted", f"{first}{also if others else ''}")
