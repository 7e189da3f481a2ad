"""An environment that counts for itself, to hold the client's counts against."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]
LENGTHS = (3, 5, 1, 4)
"""Env steps of the episodes, in turn."""


class CountingEnv(gymnasium.Env[Observation, int]):
    """Every env step is worth 2 and takes 4 frames; episodes have the lengths of `LENGTHS` in turn."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)  # type: ignore[assignment]  # its element is a numpy integer

    def __init__(self, first: int = 0) -> None:
        self.num_steps = self.num_episodes = self.at = 0
        self._number = first

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at, self._number = 0, self._number + 1
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        self.num_steps += 1
        self.at += 1
        over = self.at == LENGTHS[self._number % len(LENGTHS)]
        self.num_episodes += over
        return np.zeros(2, np.float32), 2.0, over, False, {"num_frames": 4}
