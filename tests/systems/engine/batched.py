"""A scenario whose environments come alone or in batches, of each kind, and log what they do; imports no torch.

Environments with the same seed do the same in every kind: episodes of 1 to `MOST_STEPS` steps, which are terminated or
truncated, or both. Each log is written in the process that steps the environment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rlbench.harness.contract.settings import GpuCosts, LearnSettings
from tests.harness.metering.batches.vector_scenarios import NativeEnvs
from tests.systems.engine import doubles
from tests.systems.engine.cells import make_cell
from tests.systems.engine.doubles import Family, log_path
from tests.systems.engine.recorded import record

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.harness.contract.device import Seat
    from rlbench.harness.plan.cells import Cell

NUM_ENVS, PER_BATCH, NUM_STEPS = 4, 2, 8
MOST_STEPS = 6
SPACE = gymnasium.spaces.Dict({"where": gymnasium.spaces.Box(-1, np.inf, (4,), np.float32)})
ACTIONS = gymnasium.spaces.Discrete(4)
LOG = np.dtype(
    [(name, "<f4") for name in ("is_step", "action", "reward", "terminated", "truncated")] + [("obs", "<f4", (4,))]
)
"""An entry of an environment's log: a reset or a step, and the observation that it gave."""
PID_FILE = "{}.pid"
KINDS = ("native", "sync", "async")
MODES = tuple(AutoresetMode)
Way = tuple[str, str, str, int]
"""System, kind of the batches, mode in which they are reset, ranks."""
NUM_ITERATIONS = 6
SLOW_MS, LAGS_MS = 5.0, 50.0
"""How long each step of environment 0 sleeps where there are several ranks, so that one of them lags behind; and where
it must, on a busy machine too."""


class LoggedEnv(gymnasium.Env[Any, Any]):
    """Shows its number, its episode, the step, and something random; the reward is the action and a random part."""

    observation_space = SPACE
    action_space = ACTIONS

    def __init__(self, path: Path, number: int, step_s: float) -> None:
        self._path, self._number, self._step_s = path, number, step_s
        self._log = -1
        self._episode = self._steps = self._left = 0

    def _observe(self, *said: float) -> dict[str, npt.NDArray[np.float32]]:
        noise = self.np_random.integers(8) / 8
        obs = np.array([self._number, self._episode, self._steps, noise], np.float32)
        entry = np.zeros((), LOG)
        for name, value in zip(LOG.names or (), (*said, obs), strict=True):
            entry[name] = value
        os.write(self._log, entry.tobytes())
        return {"where": obs}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draws the length of the episode; the first one opens the log."""
        super().reset(seed=seed, options=options)
        if self._log < 0:
            self._log = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._path.with_suffix(".pid").write_text(str(os.getpid()))
        self._episode, self._steps = self._episode + 1, 0
        self._left = int(self.np_random.integers(1, MOST_STEPS + 1))
        return self._observe(0, 0, 0, 0, 0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Ends the episode in one of three ways when it is as long as it was to be."""
        time.sleep(self._step_s)
        self._steps, self._left = self._steps + 1, self._left - 1
        reward = int(action) + self.np_random.integers(8) / 8
        ends = ((True, False), (False, True), (True, True))[self.np_random.integers(3)]
        terminated, truncated = (False, False) if self._left else ends
        return self._observe(1, int(action), reward, terminated, truncated), reward, terminated, truncated, {}

    def close(self) -> None:
        """Closes the log."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchedScenario:
    """Makes such environments."""

    name: str = "batched"
    workload: str = "homogeneous"
    logs: str = ""
    """A folder."""
    kind: str = "native"
    """`alone`, or of `KINDS`."""
    mode: str = AutoresetMode.NEXT_STEP.value
    slow_ms: float = 0.0
    """How long each step of environment 0 of rank 0 sleeps."""
    num_envs: int = NUM_ENVS
    rollout_steps: int = NUM_STEPS
    policy: str = "small"
    learn: LearnSettings = field(default_factory=lambda: LearnSettings(num_minibatches=2))
    gpu_costs: GpuCosts = field(default_factory=GpuCosts)
    preload: tuple[str, ...] = ("tests.systems.engine.batched",)

    observation_space = SPACE
    action_space = ACTIONS

    @property
    def envs_per_batch(self) -> int:
        """B."""
        return 0 if self.kind == "alone" else PER_BATCH

    def make_env(self, seat: Seat) -> LoggedEnv:
        """One of them."""
        is_slow = seat.global_index == 0
        return LoggedEnv(log_path(Path(self.logs), seat.global_index), seat.global_index, is_slow * self.slow_ms / 1e3)

    def make_envs(self, seats: Sequence[Seat]) -> VectorEnv[Any, Any, Any]:
        """A batch of them."""
        mode = AutoresetMode(self.mode)
        if self.kind == "native":
            return NativeEnvs([self.make_env(seat) for seat in seats], mode)
        made = [partial(self.make_env, seat) for seat in seats]
        return (SyncVectorEnv if self.kind == "sync" else AsyncVectorEnv)(made, autoreset_mode=mode)


FAMILY = Family("environments in batches", BatchedScenario)
registered = partial(doubles.registered, "batched", __name__)


def cell_of(way: Way, logs: Path, iterations: int = NUM_ITERATIONS, slow_ms: float = SLOW_MS) -> Cell:
    """A cell, to be loaded where the family is registered; on one rank no environment is slow."""
    system, kind, mode, num_ranks = way
    slow_ms = slow_ms if num_ranks > 1 else 0.0
    scenario = f"batched:kind={kind}:mode={mode}:logs={logs}:slow_ms={slow_ms}"
    return make_cell(system, scenario, gpus=num_ranks, iterations=iterations)


def record_batched(folder: Path) -> None:
    """Runs this rank of the cell in `folder`, whose learner writes down what it learns from."""
    with registered():
        record(folder)


@dataclass(frozen=True, slots=True)
class Log:
    """What an environment did: K env steps, in order."""

    obs: npt.NDArray[np.float32]
    """[K, 4], before the step."""
    after: npt.NDArray[np.float32]
    """[K, 4], that the step gave."""
    steps: npt.NDArray[Any]
    """[K], of `LOG`."""
    starts: npt.NDArray[np.bool_]
    """[K], whether the step was an episode's first."""

    @classmethod
    def read(cls, logs: Path, number: int) -> Log:
        """That of environment `number` of a run."""
        entries = np.fromfile(log_path(logs, number), LOG)
        at = np.flatnonzero(entries["is_step"])
        return cls(entries["obs"][at - 1], entries["obs"][at], entries[at], entries["is_step"][at - 1] == 0)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """[K], whether the step was an episode's last."""
        ended: npt.NDArray[np.bool_] = (self.steps["terminated"] > 0) | (self.steps["truncated"] > 0)
        return ended

    def check(self, samples: Mapping[str, npt.NDArray[Any]]) -> None:
        """The S samples that were learned of it, in the order of time, are its first S steps."""
        num = len(samples["reward"])
        assert num <= len(self)
        steps, starts = self.steps[:num], self.starts[:num]
        assert np.array_equal(samples["obs/where"], self.obs[:num])
        assert np.array_equal(samples["action"][:, 0], steps["action"])
        assert np.array_equal(samples["reward"], steps["reward"])
        terminated, truncated = steps["terminated"] > 0, steps["truncated"] > 0
        assert np.array_equal(samples["terminated"], terminated)
        assert np.array_equal(samples["truncated"], truncated & ~terminated)
        assert np.array_equal(samples["episode_start"], starts)
        goes_on = ~starts[1:]
        assert np.array_equal(samples["prev_action"][1:][goes_on], samples["action"][:-1][goes_on])
        ends = np.flatnonzero(self.ended[:num])
        if len(ends):
            returns = np.add.reduceat(steps["reward"], np.flatnonzero(starts))[: len(ends)]
            lengths = np.diff(ends, prepend=-1)
            assert np.array_equal(samples["episode"][ends, :2], np.stack((returns, lengths), 1).astype(np.float32))
