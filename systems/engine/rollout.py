"""What fills a batch: `Fixed`, T steps of each environment.

A rollout object hands out slots of the rank's table: `slots` is where each environment stands, `advance` moves it on.
It knows nothing of processes, so a test drives it by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from systems.engine.tables import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed:
    """T steps of each environment (SyncOnRL, DD-PPO section 3)."""

    num_steps: int = 0
    """T; 0 takes the scenario's."""

    def __post_init__(self) -> None:
        """Checks the field."""
        if self.num_steps < 0:
            raise ValueError(f"rollout.num_steps={self.num_steps}: must be at least 1, or 0 for the scenario's")

    def steps(self, scenario_steps: int) -> int:
        """T for a scenario."""
        return self.num_steps or scenario_steps

    def num_slots(self, num_envs: int, num_steps: int) -> int:
        """Rows that the table needs: one more step, for the observation behind the last action."""
        return (num_steps + 1) * num_envs

    def open(self, num_envs: int, num_steps: int) -> FixedRollout:
        """An empty rollout."""
        return FixedRollout(num_envs, num_steps)


class FixedRollout:
    """Slot t * N + n holds step t of environment n."""

    def __init__(self, num_envs: int, num_steps: int) -> None:
        self.num_envs = num_envs
        self.num_steps = num_steps
        self.envs = np.arange(num_envs)
        self.taken = np.zeros(num_envs, dtype=np.int64)
        """Steps that each environment has in this rollout, [N]."""

    def begin(self, table: Table) -> None:
        """Starts again; where each environment stood at the end is its first slot now."""
        last = self.slots(self.envs)
        for column in table.columns:
            if column.name.startswith("obs/") or column.name in {"prev_action", "episode_start"}:
                array = table[column.name]
                array[: self.num_envs] = array[last]
        self.taken[:] = 0

    def slots(self, envs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The slot at which each of `envs` [K] stands, [K]."""
        return self.taken[envs] * self.num_envs + envs

    def advance(self, envs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Moves each of `envs` [K] one step on; returns where they stand now, [K]."""
        self.taken[envs] += 1
        return self.slots(envs)

    @property
    def num_samples(self) -> int:
        """Env steps in the rollout."""
        return int(self.taken.sum())

    @property
    def is_full(self) -> bool:
        """True when every environment has taken T steps."""
        return bool((self.taken == self.num_steps).all())

    def runs(self) -> list[npt.NDArray[np.int64]]:
        """The slots of each environment in order, [taken] each."""
        return [np.arange(count) * self.num_envs + env for env, count in enumerate(self.taken.tolist())]
