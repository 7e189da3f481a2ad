"""The progress of a running cell, read from the meters that its processes write; never waits for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlbench.harness.metering.meter_file import MeterFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rlbench.harness.metering.meter_file import MeterFile

PREPARING, STARTING_NODES = "loading libraries", "starting nodes"
"""Steps of a cell before a rank has a meter; on several machines, before the head has heard of all."""
STARTING_RANKS, STARTING_ENVS, FIRST_ROLLOUT = "starting ranks", "starting environments", "first rollout"
"""Steps until something is learned; of the first two it is said how many are up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The progress of a running cell."""

    phase: str
    """What most ranks are doing; before anything was learned, the step of the start that the run is at."""
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
        learned = sum(file.count(0, "learned") for file in files.values())
        return Snapshot(
            phase=self._starting(files, env_steps) or _phase(phases, is_first=not (iterations or learned)),
            iterations=iterations,
            learned=learned,
            env_steps=env_steps,
            joint_steps=sum(file.total("joint_steps") for file in files.values()),
        )

    def _starting(self, files: Mapping[int, MeterFile], env_steps: int) -> str | None:
        """The step of the start that the run is at; None when an environment has stepped."""
        up = files.keys() | self._lost
        if not up - self._lost or up != set(self._meters.ranks):
            return f"{STARTING_RANKS}, {len(up)} of {len(self._meters.ranks)}"
        if not env_steps:
            # The process that steps an environment writes its number when it begins to make it.
            begun = sum(file.count(1 + env, "pid") > 0 for file in files.values() for env in range(file.num_envs))
            return f"{STARTING_ENVS}, {begun} of {sum(file.num_envs for file in files.values())}"
        return None

    def close(self) -> None:
        """Unmaps the meters; without this, a traceback that refers to itself (psutil's) could keep them mapped."""
        self._meters.close()


def _phase(phases: Counter[str], *, is_first: bool) -> str:
    """What most ranks are doing; whatever they do before they learn for the first time is of the first rollout."""
    phase = phases.most_common(1)[0][0]
    return FIRST_ROLLOUT if is_first and phase != "learn" else phase
