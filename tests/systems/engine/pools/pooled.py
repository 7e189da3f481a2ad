"""A scenario of pools whose environments log what they do; imports no torch.

An environment's episodes have 1 to `MOST_STEPS` steps. It shows its number, its episode, the step and something random.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rlbench.harness.contract.settings import GpuCosts, LearnSettings
from tests.harness.metering.batches.pool_double import DoublePool
from tests.systems.engine import doubles
from tests.systems.engine.cells import make_cell
from tests.systems.engine.doubles import Family, log_path
from tests.systems.engine.recorded import record

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.harness.contract.device import Seat
    from rlbench.harness.plan.cells import Cell

NUM_ENVS, PER_POOL, PER_RECV, NUM_STEPS = 8, 4, 2, 8
MOST_STEPS = 6
SPACE = gymnasium.spaces.Dict({"where": gymnasium.spaces.Box(-1, np.inf, (4,), np.float32)})
ACTIONS = gymnasium.spaces.Discrete(4)
LOG = np.dtype(
    [(name, "<f4") for name in ("action", "reward", "terminated", "truncated")]
    + [("before", "<f4", (4,)), ("after", "<f4", (4,))]
)
"""An entry of an environment's log: a step, and the observations around it."""


class LoggedEnv(gymnasium.Env[Any, Any]):
    """The reward is the action and a random part; where it is stuck it never answers its tenth step."""

    observation_space = SPACE
    action_space = ACTIONS

    def __init__(self, path: Path, number: int, *, is_stuck: bool) -> None:
        self._path, self._number, self._is_stuck = path, number, is_stuck
        self._log = -1
        self._episode = self._steps = self._left = self._total = 0

    def _observe(self) -> npt.NDArray[np.float32]:
        self._last = np.array([self._number, self._episode, self._steps, self.np_random.integers(8) / 8], np.float32)
        return self._last

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draws the length of the episode; the first one opens the log."""
        super().reset(seed=seed, options=options)
        if self._log < 0:
            self._log = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._path.with_suffix(".pid").write_text(str(os.getpid()))
        self._episode, self._steps = self._episode + 1, 0
        self._left = int(self.np_random.integers(1, MOST_STEPS + 1))
        return {"where": self._observe()}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Ends the episode in one of three ways when it is as long as it was to be."""
        self._total += 1
        while self._is_stuck and self._total == 10:
            time.sleep(60)
        self._steps, self._left = self._steps + 1, self._left - 1
        reward = int(action) + self.np_random.integers(8) / 8
        ends = ((True, False), (False, True), (True, True))[self.np_random.integers(3)]
        terminated, truncated = (False, False) if self._left else ends
        before = self._last
        entry = np.array([(int(action), reward, terminated, truncated, before, self._observe())], LOG)
        os.write(self._log, entry.tobytes())
        return {"where": self._last}, reward, terminated, truncated, {}


class FailsToSend(DoublePool):
    """Takes no more after a while."""

    def send(self, actions: Any, env_id: npt.NDArray[np.int32], /) -> None:
        """Raises."""
        if self.num_sent > 40:
            raise LookupError("no room")
        super().send(actions, env_id)


class FailsToReceive(DoublePool):
    """Gives no more after a while."""

    def recv(self) -> Any:
        """Raises."""
        if self.num_sent > 40:
            raise LookupError("no room")
        return super().recv()


@dataclass(frozen=True, kw_only=True, slots=True)
class PooledScenario:
    """Makes pools of such environments."""

    name: str = "pooled"
    workload: str = "homogeneous"
    logs: str = ""
    """A folder."""
    envs_per_batch: int = PER_POOL
    envs_per_recv: int = PER_RECV
    stuck: int = -1
    """The environment that does not go on."""
    fails: str = ""
    """`send` or `recv` of the second pool of a rank raises, some time."""
    num_envs: int = NUM_ENVS
    rollout_steps: int = NUM_STEPS
    policy: str = "small"
    learn: LearnSettings = field(default_factory=lambda: LearnSettings(num_minibatches=2))
    gpu_costs: GpuCosts = field(default_factory=GpuCosts)
    preload: tuple[str, ...] = ("tests.systems.engine.pools.pooled",)

    observation_space = SPACE
    action_space = ACTIONS

    def make_env(self, seat: Seat) -> LoggedEnv:
        """One of them."""
        number = seat.global_index
        return LoggedEnv(log_path(Path(self.logs), number), number, is_stuck=number == self.stuck)

    def make_envs(self, seats: Sequence[Seat]) -> DoublePool:
        """A pool of them."""
        kind = {"": DoublePool, "send": FailsToSend, "recv": FailsToReceive}[self.fails if seats[0].index else ""]
        return kind([self.make_env(seat) for seat in seats], self.envs_per_recv, [seat.seed for seat in seats])


FAMILY = Family("environments in pools", PooledScenario)
registered = partial(doubles.registered, "pooled", __name__)


def pooled_cell(system: str, logs: Path, *, gpus: int = 1, iterations: int = 6, more: str = "", **fields: Any) -> Cell:
    """A cell, to be loaded where the family is registered; `more` settings of the scenario."""
    return make_cell(system, f"pooled:logs={logs}{more}", gpus=gpus, iterations=iterations, **fields)


def record_pooled(folder: Path) -> None:
    """Runs this rank of the cell in `folder`, whose learner writes down what it learns from."""
    with registered():
        record(folder)


def read_log(logs: Path, number: int) -> npt.NDArray[Any]:
    """The steps of environment `number` of a run, [K] of `LOG`."""
    return np.fromfile(log_path(logs, number), LOG)
