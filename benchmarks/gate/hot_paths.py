"""Counts the instructions and allocations of hot paths: a program for valgrind, which `check_counts.py` starts.

A hot path is what a run does at least once for each env step, inference or rollout, without what stands for the
simulator and the GPU. Counts do not depend on the machine's speed or neighbours: the same code has the same ones, but
for a few thousandths that come from where its data happen to lie in memory. What the kernel does is not counted.

It imports nothing of `benchmarks` or `tests`, so that these same paths can be counted in another revision of rlbench,
by a `PYTHONPATH` that begins with its work tree. A path that cannot be had there is reported with its error.

Callgrind translates all code that it instruments, so it instruments from here on: importing torch without takes 20 s,
and with it 80 s. Torch brings callgrind's client requests, for its own `torch.utils.benchmark`.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete

Call = Callable[[], object]
Making = Callable[[Path], Any]

NUM_WARM = 40
"""Calls before: Python specialises code that it has run often enough, and caches are filled."""
NUM_CALLS = 40
"""Calls that are counted together; their mean is reported."""
NUM_ENVS, NUM_STEPS, NUM_RANKS = 16, 128, 8
SPACE = Dict({"goal": Box(-9, 9, (3,), np.float32), "depth": Box(0, 10, (1, 64, 64), np.float32)})
WAITING = np.arange(4)
"""Environments that wait for an action at the same time."""
STATE_SIZE = 128


class IdleEnv(gymnasium.Env[dict[str, Any], Any]):
    """An environment whose steps take no time and whose episodes never end."""

    observation_space = SPACE
    action_space = Discrete(4)

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


class IdleScenario:
    """As much of a scenario as a worker needs."""

    observation_space = SPACE
    action_space = Discrete(4)

    def make_env(self, seat: object) -> IdleEnv:
        """Makes an environment; the seat makes no difference."""
        del seat
        return IdleEnv()


def _seat() -> Any:
    from rlbench.harness.contract.device import Place, Seat
    from rlbench.harness.devices.kinds import CpuDevice

    place = Place(rank=0, num_ranks=1, local_rank=0)
    return Seat(place=place, index=0, num_envs=1, seed=0, device=CpuDevice(1))


@contextmanager
def _env(folder: Path) -> Iterator[Any]:
    from rlbench.harness.contract.envs import make_counted_env
    from rlbench.harness.metering.meter import RankMeter

    with closing(RankMeter(folder, 0, 1)) as meter:
        made = make_counted_env(cast("Any", IdleScenario()), _seat(), folder, meter.path)
        made.reset()
        yield made
        made.close()


@contextmanager
def counted_step(folder: Path) -> Iterator[Call]:
    """Metering: counting an env step, its frames and its time."""
    with _env(folder) as env:
        yield lambda: env.step(0)


@contextmanager
def client_step(folder: Path) -> Iterator[Call]:
    """Metering: counting an env step of a trainer of the user's own."""
    import rlbench_client
    from rlbench_client.counters import FOLDER_VARIABLE

    os.environ[FOLDER_VARIABLE] = str(folder)
    env = rlbench_client.count(IdleEnv())
    env.reset()
    yield lambda: env.step(0)
    env.close()


@contextmanager
def span(folder: Path) -> Iterator[Call]:
    """Metering: a span that pauses the one around it."""
    from rlbench.harness.metering.meter import RankMeter

    with closing(RankMeter(folder, 0, 1)) as meter, meter.span("simulate"):

        def enter() -> None:
            with meter.span("infer"):
                pass

        yield enter


@contextmanager
def worker_step(folder: Path) -> Iterator[Call]:
    """Tables: what an environment worker does for an env step: reads the action, steps, and writes what came of it."""
    from rlbench.systems.engine.workers.worker import Worker, WorkerSettings

    with closing(_table()) as table, _env(folder) as env:
        settings = WorkerSettings(
            scenario=cast("Any", IdleScenario()),
            seats=(_seat(),),
            first=0,
            folder=folder,
            table=table,
            commands=(),
            replies=None,
        )
        worker = Worker(settings, -1, -1)
        worker._envs[0] = env
        yield lambda: worker.step(0, 3, 4)


def _table() -> Any:
    from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
    from rlbench.systems.spaces.actions import ActionLayout

    return SharedTable(rollout_columns(SPACE, ActionLayout.of(Discrete(4)), NUM_ENVS, NUM_STEPS, STATE_SIZE))


@contextmanager
def framing(folder: Path) -> Iterator[Call]:
    """Framing: four env steps as bytes for a connection, and back into the table."""
    from rlbench.systems.engine.workers.env_wire import WireRows

    del folder
    with closing(_table()) as table:
        rows, nexts = WireRows(table, acted=False), WAITING + len(WAITING)

        def there_and_back() -> None:
            rows.unpack(memoryview(b"".join(rows.pack(WAITING, WAITING, nexts))), WAITING, WAITING, nexts)

        yield there_and_back


@contextmanager
def booking(folder: Path) -> Iterator[Call]:
    """Reserving an emulated GPU for an inference."""
    from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS
    from rlbench.harness.devices.emulated_gpu import EmulatedGpu, gpu_path

    gpu = EmulatedGpu(gpu_path(folder, 0), TYPICAL_GPU_COSTS, 1)
    yield lambda: gpu.reserve("infer", 4)
    os.close(gpu._fd)


@contextmanager
def rollout_steps(folder: Path) -> Iterator[Call]:
    """Deciding: the bookkeeping of `ver` for four env steps that begin and end."""
    from rlbench.systems.choices.rollout import Variable
    from rlbench.systems.engine.rollouts.opening import open_rollout

    del folder
    rollout = open_rollout(Variable(), NUM_ENVS, NUM_STEPS, ahead=0)

    def step() -> None:
        rollout.start(WAITING)
        rollout.note_acted(rollout.at[WAITING])
        rollout.finish(WAITING)
        if rollout.is_full:
            rollout.release(rollout.take()[:, 1].tolist())

    yield step


@contextmanager
def preemption(folder: Path) -> Iterator[Call]:
    """Deciding: the plan of `ver` for 8 ranks with 16 environments each, when to preempt."""
    from rlbench.systems.choices.preempt import plan

    del folder
    step_times_s = np.random.default_rng(0).lognormal(-4, 0.6, (NUM_RANKS, NUM_ENVS))
    yield lambda: plan(step_times_s, 1.0, NUM_STEPS, whole=False)


@contextmanager
def packing(folder: Path) -> Iterator[Call]:
    """Packing: a rollout of 16 x 128 steps is cut into sequences and dealt to two mini-batches, which are packed."""
    from rlbench.systems.engine.rollouts.rollout import runs_of
    from rlbench.systems.learn.sequences import cut_sequences, pack, split_by_steps

    del folder
    generator = np.random.default_rng(0)
    num = NUM_ENVS * NUM_STEPS
    steps = np.stack((generator.integers(NUM_ENVS, size=num), np.arange(num)), 1)
    starts, states, shuffle = generator.random(num) < 0.01, torch.zeros(num, STATE_SIZE), torch.Generator()

    def arrange() -> None:
        shuffle.manual_seed(0)
        runs, envs = runs_of(steps)
        sequences = cut_sequences(runs, envs, starts, states)
        for group in split_by_steps(sequences, 2, shuffle, states):
            pack(group)

    yield arrange


@contextmanager
def few_rows(folder: Path) -> Iterator[Call]:
    """Inference: a step of the small policy for four environments, in numpy."""
    from rlbench.systems.policies.few_rows import THREADS_VARIABLE, FewRows
    from rlbench.systems.policies.policy import build_policy
    from rlbench.systems.spaces.actions import ActionLayout

    del folder
    os.environ[THREADS_VARIABLE] = "1"
    policy = build_policy("small", SPACE, ActionLayout.of(Discrete(4)), seed=0)
    rows = FewRows.of(policy)
    assert rows is not None
    obs = {key: np.ones((4, *(box.shape or ())), box.dtype) for key, box in SPACE.spaces.items()}
    state, generator = policy.initial_state(4).numpy(), np.random.default_rng(0)
    before = np.zeros((4, 1), np.int64), np.zeros(4, np.bool_)
    yield lambda: rows.act(obs, *before, state, generator)


PATHS = (
    counted_step,
    client_step,
    span,
    worker_step,
    framing,
    booking,
    rollout_steps,
    preemption,
    packing,
    few_rows,
)


def fill_free_lists() -> None:
    """Leaves Python as many small objects to use again as it keeps, so that allocations depend on a path alone."""
    made: list[object] = [tuple(range(size)) for size in range(1, 20) for _ in range(2000)]
    made += [kind() for kind in (list, dict) for _ in range(80)]
    made += [float(number) for number in range(100)]


def main(result: Path) -> None:
    """Counts all paths. Of the Nth that `result` names without an error, the counts are in callgrind's dump N."""
    found: dict[str, str] = {}
    gc.disable()
    instrument = subprocess.Popen(["vgdb", f"--pid={os.getpid()}", "instrumentation", "on"], stdout=subprocess.DEVNULL)
    while instrument.poll() is None:  # valgrind looks for commands as it translates: who sleeps here is not heard
        pass
    if instrument.returncode:
        sys.exit(f"vgdb: exit code {instrument.returncode}")
    for path in PATHS:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            try:
                call = stack.enter_context(path(Path(folder)))
                for _ in range(NUM_WARM):
                    call()
            except Exception as problem:  # noqa: BLE001  another revision may have it elsewhere
                found[path.__name__] = traceback.format_exception_only(problem)[-1].strip()
                continue
            found[path.__name__] = ""
            fill_free_lists()
            torch._C._valgrind_toggle()
            for _ in range(NUM_CALLS):
                call()
            torch._C._valgrind_toggle_and_dump_stats()
    result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # ending takes as long as beginning, and nothing is left to say
