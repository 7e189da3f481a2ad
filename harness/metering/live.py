"""The progress of a running cell, read from the meters that its processes write; never waits for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlbench.harness.metering.meter_file import MeterFiles

if TYPE_CHECKING:
    from pathlib import Path

STARTING = "starting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The progress of a running cell."""

    phase: str
    """What most ranks are doing; `STARTING` until all ranks are up."""
    iterations: int
    """Of the rank that is furthest behind."""
    learned: int
    env_steps: int
    """Agent steps, where environments have several agents."""
    joint_steps: int = 0
    """Env steps where environments have several agents; else 0."""


class LiveMeters:
    """The meters of the ranks of a running cell, as they appear."""

    def __init__(self, folder: Path, ranks: range) -> None:
        self._meters = MeterFiles(folder, ranks)
        self._lost: set[int] = set()

    def lose(self, rank: int) -> bool:
        """Notes that a rank is gone: its counts stay, the others give the progress. False if it was noted before."""
        known, self._lost = rank in self._lost, self._lost | {rank}
        return not known

    def read(self) -> Snapshot:
        """The counters now, of the ranks that have started."""
        files = self._meters.there()
        running = [file for rank, file in files.items() if rank not in self._lost]
        phases = Counter(file.phase() for file in running)
        iterations = min((file.count(0, "iteration") for file in running), default=0)
        env_steps = sum(file.total("env_steps") for file in files.values())
        is_up = running and env_steps and files.keys() | self._lost == set(self._meters.ranks)
        phase = phases.most_common(1)[0][0] if is_up else STARTING
        return Snapshot(
            phase=phase,
            iterations=iterations,
            learned=sum(file.count(0, "learned") for file in files.values()),
            env_steps=env_steps,
            joint_steps=sum(file.total("joint_steps") for file in files.values()),
        )

    def close(self) -> None:
        """Unmaps the meters; without this, a traceback that refers to itself (psutil's) could keep them mapped."""
        self._meters.close()
