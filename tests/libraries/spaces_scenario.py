"""A scenario of any spaces; its environments refuse actions that are not in theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import GpuCosts, LearnSettings

NUMBERS = Box(-np.inf, np.inf, (5,), np.float64)
ARM = Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 0.5], np.float32))
IMAGE = Box(0, 255, (40, 48, 3), np.uint8)
SPACES: Mapping[str, tuple[gymnasium.Space[Any], gymnasium.Space[Any]]] = {
    "arm": (NUMBERS, ARM),
    "grid-arm": (IMAGE, Box(-1.0, 1.0, (2, 2), np.float32)),
    "levers": (Dict({"a": NUMBERS, "b": Discrete(3)}), MultiDiscrete([3, 2])),
    "switches": (Tuple((NUMBERS, MultiBinary(4))), MultiBinary(3)),
    "both": (Dict({"inner": Dict({"seen": IMAGE, "felt": NUMBERS}), "mode": Discrete(2)}), ARM),
    "joint": (NUMBERS, Tuple((Discrete(3), ARM, MultiDiscrete([2, 2])))),
    "tree": (NUMBERS, Dict({"move": ARM, "fire": Discrete(2)})),
}
"""Spaces of observations and actions, by variant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnySpaces:
    """Noise, in episodes of 3 to 20 env steps."""

    name: str
    spaces: str
    workload: str = "homogeneous"
    num_envs: int = 4
    rollout_steps: int = 32
    policy: str = "auto"
    normalize_observations: bool = False
    action_bounds: str = "clip"
    action_std: str = "shared"
    image_order: str = "auto"
    learn: LearnSettings = field(default_factory=LearnSettings)
    gpu_costs: GpuCosts = field(default_factory=GpuCosts)
    preload: tuple[str, ...] = ()

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """As the variant has it."""
        return SPACES[self.spaces][0]

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """As the variant has it."""
        return SPACES[self.spaces][1]

    def make_env(self, seat: Seat) -> gymnasium.Env[Any, Any]:
        """An environment of these spaces."""
        return StrictEnv(self, seat.seed)


class StrictEnv(gymnasium.Env[Any, Any]):
    """Shows anything; raises ValueError for an action that is not in its space."""

    def __init__(self, scenario: AnySpaces, seed: int) -> None:
        self.observation_space = scenario.observation_space
        self.action_space = scenario.action_space
        self.observation_space.seed(seed)
        self._generator = np.random.default_rng(seed)
        self._left = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        del seed, options
        self._left = int(self._generator.integers(3, 21))
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One env step."""
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self._left -= 1
        return self.observation_space.sample(), 1.0, self._left == 0, False, {}


class Family:
    """The family of these scenarios."""

    about = "any spaces"
    variants: tuple[str, ...] = tuple(SPACES)

    def unavailable(self) -> str | None:
        """It is there."""
        return None

    def make(self, variant: str, workload: str) -> AnySpaces:
        """The scenario."""
        name = variant or self.variants[0]
        return AnySpaces(name=f"any-spaces/{name}", spaces=name, workload=workload)


FAMILY = Family()
