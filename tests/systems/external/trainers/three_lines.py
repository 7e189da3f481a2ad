"""Plays so many env steps in its own environment, which counts for itself, and ends: three lines are rlbench's."""

import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import rlbench_client  # 1


class Own(gymnasium.Env[NDArray[np.float32], int]):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)  # type: ignore[assignment]  # its element is a numpy integer
    num_steps = at = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        self.num_steps += 1
        self.at += 1
        return np.zeros(2, np.float32), 1.0, self.at == 10, False, {}


own = Own()
env = rlbench_client.count(own)  # 2
env.reset()
for _ in range(int(sys.argv[1]) // 64):
    for _ in range(64):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    time.sleep(0.06)  # learning
    rlbench_client.learned(64)  # 3
Path("own-count").write_text(str(own.num_steps))
