"""A scenario whose observations say where they come from; imports no torch.

Environment i of a rank has episodes of `LENGTHS[i]` steps, cut by a time limit, but the last one's end in a final
state. Step t of an episode (0: after the reset) shows [t, the last action, 1], the same on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from rlbench.harness.contract.settings import GpuCosts, LearnSettings

if TYPE_CHECKING:
    from rlbench.harness.contract.device import Seat

NUM_STEPS = 12
"""T."""
LENGTHS = (4, 5, 100, 6)
"""So in a rollout: cut at its end and before; cut before; never; ended at its end and before."""
SPACE = gymnasium.spaces.Dict({"where": Box(-1, np.inf, (3,), np.float32)})


class CountingEnv(gymnasium.Env[dict[str, Any], int]):
    """One environment."""

    observation_space = SPACE
    action_space = gymnasium.spaces.Discrete(4)  # type: ignore[assignment]  # its element is a numpy integer

    def __init__(self, length: int, *, final: bool) -> None:
        self._length, self._final, self._steps = length, final, 0

    def _observe(self, action: int) -> dict[str, Any]:
        return {"where": np.array([self._steps, action, 1], np.float32)}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode."""
        del seed, options
        self._steps = 0
        return self._observe(-1), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Counts; the reward is the action."""
        self._steps += 1
        ends = self._steps == self._length
        return self._observe(action), float(action), ends and self._final, ends and not self._final, {}


@dataclass(frozen=True, kw_only=True, slots=True)
class CountingScenario:
    """Makes the environments of a rank."""

    name: str = "counting"
    workload: str = "homogeneous"
    num_envs: int = len(LENGTHS)
    rollout_steps: int = NUM_STEPS
    policy: str = "small"
    learn: LearnSettings = field(default_factory=LearnSettings)
    gpu_costs: GpuCosts = field(default_factory=GpuCosts)
    preload: tuple[str, ...] = ()

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """Of no effect."""
        return gymnasium.spaces.Discrete(4)

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """One vector."""
        return SPACE

    def make_env(self, seat: Seat) -> gymnasium.Env[dict[str, Any], int]:
        """Makes environment `seat.index`."""
        return CountingEnv(LENGTHS[seat.index], final=seat.index == len(LENGTHS) - 1)
