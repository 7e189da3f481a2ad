"""A scenario family of somebody else's, `faulty`: its environments go wrong in one way each, at their 20th step.

It is installed beside rlbench by `runs.install_faulty`. `faulty/patient` never goes wrong; its episodes return 0 until
a file named by its tag is in the folder that FAULTY_RELEASE names, and 1 from then on, so that `--until return>=1`
ends its runs when a test says so.
"""

from __future__ import annotations

import collections
import itertools
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings

FAULT_AT = 20
EPISODE_STEPS = 4
STEP_S, SLOW_STEP_S = 0.001, 1.0
LEAK_BYTES, MOST_LEAKS = 10_000_000, 60
"""At every step, and of so many steps, so that no machine is short of memory before somebody looks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultyScenario:
    """A small vector observation that means nothing."""

    name: str
    workload: str
    tag: str = ""
    """Tells cells of one sweep apart."""
    step_s: float = STEP_S
    num_envs: int = 2
    rollout_steps: int = 16
    policy: str = "small"
    learn: LearnSettings = field(default_factory=LearnSettings)
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    preload: tuple[str, ...] = ("gymnasium",)

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """Three numbers."""
        return gymnasium.spaces.Dict({"vector": gymnasium.spaces.Box(0, 1, (3,), np.float32)})

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """Two; what rank 1 asks first, and early."""
        if self.name.endswith("raise-on-rank-1") and os.environ.get("RANK") == "1":
            raise RuntimeError("rank 1 has no actions")
        return gymnasium.spaces.Discrete(2)

    def make_env(self, seat: Seat) -> FaultyEnv:
        """Makes an environment that goes wrong as the variant says: the second of a rank, or all that are slow."""
        variant = self.name.partition("/")[2]
        fault = variant if seat.index == 1 or variant == "slow-step" else "patient"
        return FaultyEnv(fault, self.tag, self.observation_space, self.step_s)


class FaultyEnv(gymnasium.Env[dict[str, Any], int]):
    """Goes wrong at its 20th step, or at the reset before it."""

    def __init__(self, fault: str, tag: str, space: gymnasium.spaces.Dict, step_s: float) -> None:
        self.observation_space = space
        self.action_space = cast("gymnasium.Space[int]", gymnasium.spaces.Discrete(2))
        self._fault, self._step_s = fault, step_s
        self._num_steps = 0
        self._leak: list[Any] = []
        self._release = Path(os.environ.get("FAULTY_RELEASE", "."), f"release-{tag}")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode."""
        del seed, options
        if self._fault == "raise-in-reset" and self._num_steps >= FAULT_AT:
            raise LookupError("no map for a reset")
        return self._observation(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Does nothing for a millisecond, or as long as it was told to, or never ends."""
        del action
        self._num_steps += 1
        time.sleep(self._step_s)
        reward = 0.0
        if self._num_steps >= FAULT_AT:
            self._go_wrong()
            reward = math.nan if self._fault == "nan-reward" else 0.0
        over = self._num_steps % EPISODE_STEPS == 0
        if over and self._release.exists():
            reward += 1.0
        return self._observation(), reward, over, False, {}

    def _observation(self) -> dict[str, Any]:
        wrong = self._fault == "wrong-shape" and self._num_steps >= FAULT_AT
        vector = np.zeros(4 if wrong else 3, np.float32)
        if self._fault == "nan-observation" and self._num_steps >= FAULT_AT:
            vector[1] = np.nan
        return {"vector": vector}

    def _go_wrong(self) -> None:
        if self._fault == "raise-in-step":
            raise LookupError("no wall behind the wall")
        if self._fault == "leak-in-step" and len(self._leak) < MOST_LEAKS:
            self._leak.append(np.ones(LEAK_BYTES // 8))
        if self._fault == "exit-in-step":
            os._exit(7)
        if self._fault == "slow-step":
            time.sleep(SLOW_STEP_S)
        if self._fault == "sleep-in-step":
            time.sleep(1e6)
        if self._fault == "write-shm":
            Path(os.environ["FAULTY_SHM"]).write_bytes(bytes(1000))
        if self._fault == "spin-in-step":  # in C, and never letting go of the interpreter's lock
            collections.deque(itertools.repeat(None), maxlen=0)


class FaultyFamily:
    """What the entry point names."""

    about: ClassVar[str] = "goes wrong in one way each"
    variants: ClassVar[tuple[str, ...]] = (
        "patient",
        "raise-in-step",
        "raise-in-reset",
        "nan-reward",
        "nan-observation",
        "leak-in-step",
        "wrong-shape",
        "exit-in-step",
        "sleep-in-step",
        "slow-step",
        "spin-in-step",
        "write-shm",
        "raise-on-rank-1",
        "wait-in-plan",
    )

    def unavailable(self) -> str | None:
        """It always can run."""
        return None

    def make(self, variant: str, workload: str) -> FaultyScenario:
        """Makes the scenario of a variant."""
        if variant not in self.variants:
            raise ValueError(f"faulty/{variant}: unknown; known: {', '.join(self.variants)}")
        if variant == "wait-in-plan":
            Path(os.environ["FAULTY_RELEASE"], "planning").touch()
            time.sleep(1e6)
        return FaultyScenario(name=f"faulty/{variant}", workload=workload)


FAMILY = FaultyFamily()
