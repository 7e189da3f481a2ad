"""A scenario that counts for itself, apart from rlbench, and stands still after a while.

Each environment has a file in $COUNTED_APART, three int64 mapped into memory: env steps, frames and episodes. A step is
counted here just before it is answered, so both counts are of the same steps once nothing is stepped any more.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import GpuCosts, LearnSettings

VARIABLE = "COUNTED_APART"
WORDS = struct.Struct("<qqq")
MOST_STEPS = 700
"""After so many the environment answers no more."""


def total(folder: Path) -> tuple[int, ...]:
    """Env steps, frames and episodes of all environments."""
    counts = [WORDS.unpack(path.read_bytes()) for path in folder.iterdir()]
    return tuple(map(sum, zip(*counts, strict=True)))


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedApart:
    """Pixels of noise, in episodes of 3 to 60 env steps that end in both ways."""

    name: str = "counted-apart"
    workload: str = "homogeneous"
    num_envs: int = 4
    rollout_steps: int = 64
    policy: str = "nature"
    learn: LearnSettings = field(default_factory=LearnSettings)
    gpu_costs: GpuCosts = field(default_factory=GpuCosts)
    preload: tuple[str, ...] = ()

    @property
    def observation_space(self) -> Dict:
        """Small images."""
        return Dict({"pixels": Box(0, 255, (3, 72, 128), np.uint8)})

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """Of no effect."""
        return gymnasium.spaces.Discrete(4)

    def make_env(self, seat: Seat) -> gymnasium.Env[dict[str, Any], int]:
        """An environment that counts."""
        return CountingEnv(seat.seed, self)


class CountingEnv(gymnasium.Env[dict[str, Any], int]):
    """Counts its steps, frames and episodes in a file."""

    def __init__(self, seed: int, scenario: CountedApart) -> None:
        self.observation_space = scenario.observation_space
        self.action_space = scenario.action_space  # type: ignore[assignment]
        self._generator = np.random.default_rng(seed)
        path = Path(os.environ[VARIABLE]) / f"{os.getpid()}-{uuid.uuid4().hex}"
        path.write_bytes(bytes(WORDS.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), WORDS.size)
        self._steps = self._frames = self._episodes = self._left = 0

    def _look(self) -> dict[str, Any]:
        return {"pixels": self._generator.integers(0, 256, (3, 72, 128), np.uint8)}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode."""
        del seed, options
        self._left = int(self._generator.integers(3, 61))
        return self._look(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Of one to four frames."""
        assert 0 <= action < 4
        while self._steps >= MOST_STEPS:
            time.sleep(1)
        num_frames = int(self._generator.integers(1, 5))
        self._left -= 1
        is_over = self._left == 0
        terminated = is_over and bool(self._generator.integers(2))
        self._steps, self._frames = self._steps + 1, self._frames + num_frames
        self._episodes += is_over
        WORDS.pack_into(self._memory, 0, self._steps, self._frames, self._episodes)
        return self._look(), 1.0, terminated, is_over and not terminated, {"num_frames": num_frames}


class Family:
    """The family of the one scenario."""

    about = "counts for itself"
    variants: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        """It is there."""
        return None

    def make(self, variant: str, workload: str) -> CountedApart:
        """The scenario."""
        assert not variant
        return CountedApart(workload=workload)


FAMILY = Family()
