"""Walkers on PyTorch tensors as a plug-in of somebody's, and the same on arrays of NumPy.

It is what the documents of rlbench say of such environments, and knows nothing of rlbench's tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import GpuCosts, LearnSettings

LOOK = Dict({"where": Box(-1, np.inf, (4,), np.float32)})
STEER = Discrete(4)
MOST_STEPS = 5


class Walkers:
    """N walkers that one call steps; no subclass of `VectorEnv`. The length of an episode is its seed's and its own."""

    single_observation_space, single_action_space = LOOK, STEER

    def __init__(self, num_envs: int, mode: AutoresetMode, library: Any) -> None:
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": mode}
        self._mode, self._library = mode, library
        self._seed = self._number = self._steps = self._episode = self._zeros(library.int64)
        self._at, self._ended = self._zeros(library.float32), self._zeros(library.bool)

    def _zeros(self, dtype: Any) -> Any:
        return self._library.zeros(self.num_envs, dtype=dtype)

    def _look(self) -> dict[str, Any]:
        columns = [self._number, self._episode, self._steps, self._at]
        floats = [self._library.asarray(column, dtype=self._library.float32) for column in columns]
        return {"where": self._library.stack(floats, 1)}

    def _begin(self, which: Any) -> None:
        self._episode = self._library.where(which, self._episode + 1, self._episode)
        self._steps = self._library.where(which, 0 * self._steps, self._steps)
        self._at = self._library.where(which, 0 * self._at, self._at)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins episodes: of all, or of those in the mask."""
        if seed is not None:
            self._seed = self._library.asarray(seed) % 1000
            self._number = self._library.arange(self.num_envs)
        self._ended = self._zeros(self._library.bool)
        self._begin(options["reset_mask"] if options else ~self._ended)
        return self._look(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Goes as far as each is told; every second episode is cut at its end, the others are over."""
        library = self._library
        assert type(actions) is type(self._at)
        due = self._ended & (self._mode == AutoresetMode.NEXT_STEP)
        self._steps, self._at = self._steps + 1, self._at + actions / 8
        rewards = library.where(due, 0 * self._at, self._at + actions)
        self._ended = (self._steps > (self._seed + self._episode) % MOST_STEPS) & ~due
        cut = self._ended & (self._episode % 2 == 0)
        self._begin(due)
        infos: dict[str, Any] = {"num_frames": 0 * self._steps + 2, "success": 1.0 * cut}
        if self._mode == AutoresetMode.SAME_STEP:
            infos |= {"final_obs": self._look(), "_final_obs": self._ended}
            self._begin(self._ended)
        return self._look(), library.asarray(rewards, dtype=library.float32), self._ended & ~cut, cut, infos

    def close(self) -> None:
        """Holds nothing."""


class Walker(gymnasium.Env[Any, Any]):
    """One of them."""

    observation_space, action_space = LOOK, STEER

    def __init__(self) -> None:
        self._one = Walkers(1, AutoresetMode.DISABLED, np)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        del options
        return {"where": self._one.reset(seed=None if seed is None else [seed])[0]["where"][0]}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Goes as far as it is told."""
        looks, rewards, over, cut, _ = self._one.step(np.array([action]))
        return {"where": looks["where"][0]}, float(rewards[0]), bool(over[0]), bool(cut[0]), {}


@dataclass(frozen=True, kw_only=True, slots=True)
class WalkersScenario:
    """Walkers."""

    name: str = "walkers"
    workload: str = "homogeneous"
    arrays: str = "torch"
    """`torch` or `numpy`."""
    mode: str = AutoresetMode.SAME_STEP.value
    num_envs: int = 6
    rollout_steps: int = 8
    policy: str = "auto"
    learn: LearnSettings = field(default_factory=lambda: LearnSettings(num_minibatches=2))
    gpu_costs: GpuCosts = field(default_factory=GpuCosts)
    preload: tuple[str, ...] = ()

    observation_space = LOOK
    action_space = STEER

    @property
    def envs_per_batch(self) -> int:
        """Two batches take turns."""
        return self.num_envs // 2

    def make_env(self, seat: Seat) -> Walker:
        """One of them."""
        del seat
        return Walker()

    def make_envs(self, seats: Sequence[Seat]) -> Any:
        """A batch of them; PyTorch is loaded in the process that steps them."""
        if self.arrays == "numpy":
            return Walkers(len(seats), AutoresetMode(self.mode), np)
        import torch

        return Walkers(len(seats), AutoresetMode(self.mode), torch)


class WalkersFamily:
    """The family of the one scenario."""

    about = "walkers on tensors"
    variants: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        """It is there."""
        return None

    def make(self, variant: str, workload: str) -> WalkersScenario:
        """The scenario."""
        assert not variant
        return WalkersScenario(workload=workload)


FAMILY = WalkersFamily()
