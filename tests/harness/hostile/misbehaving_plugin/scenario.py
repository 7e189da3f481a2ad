"""The scenario family `misbehaving`: hundreds of ways to go wrong, each at one call.

`misbehaving/step:case=KeyError-escape` raises a KeyError with an escape sequence in its text in `step`. The second
environment of rank 0 goes wrong, from its 10th step on; `close` at the end of a run.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings

from .cases import CASES, LEARNING
from .raises import make_error
from .values import ANSWERS, HUGE, INFOS, OBSERVATIONS, RESETS, REWARDS, VECTOR

FAULT_AT = 10
EPISODE_STEPS = 4
STEP_S = 0.001


@dataclass(frozen=True, kw_only=True, slots=True)
class MisbehavingScenario:
    """A small vector observation that means nothing."""

    name: str
    workload: str
    case: str = "none"
    num_envs: int = 2
    rollout_steps: int = 8
    policy: str = "small"
    learn: LearnSettings = field(default_factory=LearnSettings)
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    preload: tuple[str, ...] = ("gymnasium",)

    @property
    def call(self) -> str:
        """Where it goes wrong."""
        return self.name.partition("/")[2]

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """Three numbers."""
        self._raise_in_rank("observation-space")
        return gymnasium.spaces.Dict({"vector": gymnasium.spaces.Box(0, 1, (3,), np.float32)})

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """Two."""
        self._raise_in_rank("action-space")
        return gymnasium.spaces.Discrete(2)

    def _raise_in_rank(self, call: str) -> None:
        if self.call == call and os.environ.get("RANK") == "0":
            raise make_error(*self.case.split("-", 1))

    def make_env(self, seat: Seat) -> MisbehavingEnv:
        """Makes an environment; only the second one of rank 0 goes wrong."""
        call = self.call if seat.global_index == 1 else "nowhere"
        if call == "make-env":
            raise make_error(*self.case.split("-", 1))
        return MisbehavingEnv(call, self.case, self.observation_space)


class MisbehavingEnv(gymnasium.Env[dict[str, Any], int]):
    """Goes wrong at its call, at the 10th step or later."""

    def __init__(self, call: str, case: str, space: gymnasium.spaces.Dict) -> None:
        self.observation_space = space
        self.action_space = cast("gymnasium.Space[int]", gymnasium.spaces.Discrete(2))
        self._call, self._case = call, case
        self._num_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode."""
        del seed, options
        if self._call == "first-reset":
            self._raise()
        if self._call == "reset" and self._num_steps >= FAULT_AT:
            self._raise()
        if self._call == "reset-answer" and self._num_steps >= FAULT_AT:
            return RESETS[self._case][0]
        return {"vector": VECTOR}, {}

    def step(self, action: int) -> Any:
        """Does nothing for a millisecond."""
        del action
        self._num_steps += 1
        time.sleep(STEP_S)
        over = self._num_steps % EPISODE_STEPS == 0
        if self._num_steps < FAULT_AT:
            return {"vector": VECTOR}, 0.0, over, False, {}
        if self._call == "step":
            self._raise()
        if self._call == "answer":
            return ANSWERS[self._case][0]
        reward = REWARDS[self._case][0] if self._call == "reward" else HUGE if self._call == "learning" else 0.0
        info = INFOS[self._case][0] if self._call == "info" else {}
        observation = OBSERVATIONS[self._case][0] if self._call == "observation" else {"vector": VECTOR}
        return observation, reward, over, False, dict(info)

    def close(self) -> None:
        """Ends, in one way or another."""
        if self._call == "close" and self._case.startswith("end-"):
            match self._case:
                case "end-exit":
                    os._exit(7)
                case "end-hang":
                    time.sleep(1e6)
                case "end-abort":
                    os.kill(os.getpid(), signal.SIGABRT)
                case _:
                    os.kill(os.getpid(), signal.SIGSEGV)
        elif self._call == "close":
            self._raise()

    def _raise(self) -> None:
        raise make_error(*self._case.split("-", 1))


class MisbehavingFamily:
    """What the entry point names."""

    about: ClassVar[str] = "goes wrong in hundreds of ways"
    variants: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys(case.call for case in (*CASES, LEARNING)))

    def unavailable(self) -> str | None:
        """It always can run."""
        return None

    def make(self, variant: str, workload: str) -> MisbehavingScenario:
        """Makes the scenario of a variant."""
        if variant not in self.variants:
            raise ValueError(f"misbehaving/{variant}: unknown; known: {', '.join(self.variants)}")
        return MisbehavingScenario(name=f"misbehaving/{variant}", workload=workload)


FAMILY = MisbehavingFamily()
