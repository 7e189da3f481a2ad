"""What env steps, decisions and bookings cost in our own code, relative to reference operations: `nox -s gate`.

A hot path is what a run does at least once for each env step, inference or rollout, without what stands for the
simulator and the GPU. Each is compared with a reference that does the same kind of work (`references.py`), so a limit
means the same on a fast machine as on a slow one, and with any of OpenBLAS's code paths. Limits are about 1.5 times
what was measured when they were set, so a path that takes twice as long fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.gate.beside import Call, time_beside
from benchmarks.gate.claims import Claim
from benchmarks.gate.references import Grouping, Interpreted, Layers, Locking, SmallArrays, Sorting, Writing
from rlbench.harness.contract.device import Place, Seat
from rlbench.harness.contract.envs import make_counted_env
from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS
from rlbench.harness.devices.emulated_gpu import EmulatedGpu, gpu_path
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.counted import CountedEnv
from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.preempt import plan
from rlbench.systems.choices.rollout import Variable
from rlbench.systems.engine.rollouts.opening import open_rollout
from rlbench.systems.engine.rollouts.rollout import runs_of
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from rlbench.systems.engine.workers.worker import Worker, WorkerSettings
from rlbench.systems.learn.sequences import cut_sequences, pack, split_by_steps
from rlbench.systems.policies.few_rows import THREADS_VARIABLE, FewRows
from rlbench.systems.policies.policy import build_policy
from tests.systems.actions import choices

NUM_ENVS, NUM_STEPS, NUM_RANKS = 16, 128, 8
SPACE = Dict({"goal": Box(-9, 9, (3,), np.float32), "depth": Box(0, 10, (1, 64, 64), np.float32)})
WAITING = np.arange(4)
"""Environments that wait for an action at the same time."""
STATE_SIZE = 128

Hot = Callable[[str, Call, Call, float], None]


@pytest.fixture
def hot(benchmark: BenchmarkFixture, must_hold: Callable[[Claim], None]) -> Hot:
    """Times a path by itself, for the record, and relative to its reference; that ratio decides."""

    def hold(what: str, call: Call, reference: Call, limit: float) -> None:
        ratio = time_beside(call, reference)
        benchmark(call)
        benchmark.extra_info.update(ratio=ratio.model_dump(mode="json"), reference=type(reference).__name__)
        must_hold(Claim(what=f"{what} / {type(reference).__name__}", ratio=ratio, limit=limit, above=False))

    return hold


class StillEnv(gymnasium.Env[dict[str, Any], int]):
    """An environment whose steps take no time and whose episodes never end."""

    def __init__(self) -> None:
        self._observation: dict[str, Any] = {key: np.ones(box.shape, box.dtype) for key, box in SPACE.spaces.items()}
        self._answer = self._observation, 1.0, False, False, dict[str, Any]()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins nothing."""
        del seed, options
        return self._observation, {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Always gives the same answer."""
        del action
        return self._answer


class StillScenario:
    """As much of a scenario as a worker needs."""

    observation_space = SPACE
    action_space = gymnasium.spaces.Discrete(4)

    def make_env(self, seat: Seat) -> StillEnv:
        """Makes an environment; the seat makes no difference."""
        del seat
        return StillEnv()


SEAT = Seat(place=Place(rank=0, num_ranks=1, local_rank=0), index=0, num_envs=1, seed=0, device=CpuDevice(1))


@pytest.fixture
def meter(tmp_path: Path) -> Iterator[RankMeter]:
    """The meter of a rank with one environment."""
    made = RankMeter(tmp_path, 0, 1)
    yield made
    made.close()


@pytest.fixture
def env(tmp_path: Path, meter: RankMeter) -> Iterator[CountedEnv]:
    """A counted environment whose step takes no time."""
    made = make_counted_env(cast("Scenario", StillScenario()), SEAT, tmp_path, meter.path)
    made.reset()
    yield made
    made.close()


def check_counted_step(hot: Hot, env: CountedEnv) -> None:
    """Counting an env step, its frames and its time."""
    hot("a counted env step", lambda: env.step(0), Interpreted(), 1.7)


def check_span(hot: Hot, meter: RankMeter) -> None:
    """A span that pauses the one around it."""

    def span() -> None:
        with meter.span("infer"):
            pass

    with meter.span("simulate"):
        hot("a span of the meter", span, Interpreted(), 3)


def check_worker_step(hot: Hot, env: CountedEnv, tmp_path: Path) -> None:
    """What an environment worker does for an env step: reads the action, steps, and writes what came of it."""
    table = SharedTable(rollout_columns(SPACE, choices(4), 1, NUM_STEPS, STATE_SIZE))
    settings = WorkerSettings(
        scenario=cast("Scenario", StillScenario()),
        seats=(SEAT,),
        first=0,
        folder=tmp_path,
        table=table,
        commands=(),
        replies=None,
    )
    worker = Worker(settings, -1, -1)
    worker._envs[0] = env
    hot("a worker's step", lambda: worker.step(0, 3, 4), Writing(), 2.7)
    table.close()


def check_booking(hot: Hot, tmp_path: Path) -> None:
    """Reserving an emulated GPU for an inference."""
    gpu = EmulatedGpu(gpu_path(tmp_path, 0), TYPICAL_GPU_COSTS, 1)
    with (tmp_path / "reference").open("w") as file:
        hot("a reservation on an emulated GPU", lambda: gpu.reserve("infer", 4), Locking(file.fileno()), 2.2)
    os.close(gpu._fd)


def check_rollout_step(hot: Hot) -> None:
    """The bookkeeping of `ver` for four env steps that begin and end."""
    rollout = open_rollout(Variable(), NUM_ENVS, NUM_STEPS, ahead=0)

    def step() -> None:
        rollout.start(WAITING)
        rollout.note_acted(rollout.at[WAITING])
        rollout.finish(WAITING)
        if rollout.is_full:
            rollout.release(rollout.take()[:, 1].tolist())

    hot("four steps of a variable rollout", step, SmallArrays(), 2.5)


def check_packing(hot: Hot) -> None:
    """Cutting a rollout of 16 x 128 steps into sequences, dealing them to two mini-batches, and packing these."""
    generator = np.random.default_rng(0)
    num = NUM_ENVS * NUM_STEPS
    steps = np.stack((generator.integers(NUM_ENVS, size=num), np.arange(num)), 1)
    starts, states, shuffle = generator.random(num) < 0.01, torch.zeros(num, STATE_SIZE), torch.Generator()

    def arrange() -> None:
        runs, envs = runs_of(steps)
        sequences = cut_sequences(runs, envs, starts, states)
        for group in split_by_steps(sequences, 2, shuffle, states):
            pack(group)

    hot("packing a rollout of 2,048 steps", arrange, Grouping(num, NUM_ENVS), 6)


def check_preemption(hot: Hot) -> None:
    """The plan of `ver` for 8 ranks with 16 environments each: when to preempt."""
    step_times_s = np.random.default_rng(0).lognormal(-4, 0.6, (NUM_RANKS, NUM_ENVS))
    reference = Sorting(NUM_RANKS * NUM_ENVS * NUM_STEPS)
    hot("a plan of preemption for 8 ranks", lambda: plan(step_times_s, 1.0, NUM_STEPS, whole=False), reference, 14)


def check_few_rows(hot: Hot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the small policy for four environments, in numpy."""
    monkeypatch.setenv(THREADS_VARIABLE, "1")
    policy = build_policy("small", SPACE, choices(4), seed=0)
    rows = FewRows.of(policy)
    assert rows is not None
    obs = {key: np.ones((4, *(box.shape or ())), box.dtype) for key, box in SPACE.spaces.items()}
    state, generator = policy.initial_state(4).numpy(), np.random.default_rng(0)
    before = np.zeros((4, 1), np.int64), np.zeros(4, np.bool_)
    hot("a step of the small policy", lambda: rows.act(obs, *before, state, generator), Layers(), 3.9)
