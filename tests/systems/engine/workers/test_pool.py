from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil
import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.system import Context
from rlbench.harness.metering.meter import RankMeter
from rlbench.harness.processes import process
from rlbench.systems.engine.wire.errors import WorkerDied, WorkerStalled
from rlbench.systems.engine.workers import pool as engine_pool
from rlbench.systems.engine.workers.env_client import EnvClient
from rlbench.systems.engine.workers.pool import WorkerPool
from rlbench.systems.engine.workers.tables import SharedTable
from tests.descriptors import open_files
from tests.harness.faulty_scenario import FAULT_AT, FaultyFamily
from tests.harness.runs import PATIENCE_S
from tests.scenarios.seats import PlainDevice
from tests.systems.actions import columns_of

NUM_ENVS = 2
MOST_ENVS = 6
ENVS = np.arange(NUM_ENVS)
STALL_S = 4.0
"""Where a stall is to be noticed, see `hurry`; everywhere else, and until then, `PATIENCE_S`."""


class Start(Protocol):
    """Starts a pool."""

    def __call__(
        self, variant: str, *, num_envs: int = NUM_ENVS, envs_per_worker: int = 1, workers_per_process: int = 1
    ) -> tuple[WorkerPool, SharedTable]:
        """Of so many environments of that variant; the second one goes wrong."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts pools on variants of `faulty`; environment n stands in slot n. Closes what its test has not."""
    monkeypatch.setattr(engine_pool, "NOTICE_S", PATIENCE_S)  # the tests may notice a death late, and go on
    pools: list[WorkerPool] = []
    meter = RankMeter(tmp_path, 0, MOST_ENVS)

    def make(
        variant: str, *, num_envs: int = NUM_ENVS, envs_per_worker: int = 1, workers_per_process: int = 1
    ) -> tuple[WorkerPool, SharedTable]:
        scenario = replace(FaultyFamily().make(variant, "homogeneous"), num_envs=num_envs)
        table = SharedTable(columns_of(scenario, num_envs, 2 * num_envs, state_size=1))
        context = Context(
            place=Place(rank=0, num_ranks=1, local_rank=0),
            scenario=scenario,
            device=PlainDevice("cpu"),
            seed=0,
            budget=Limits(iterations=1),
            meter=meter,
            folder=str(tmp_path),
            stall_s=PATIENCE_S,
        )
        seats = [context.seat(env, context.env_seed(env)) for env in range(num_envs)]
        pools.append(
            WorkerPool(context, table, seats, envs_per_worker=envs_per_worker, workers_per_process=workers_per_process)
        )
        pools[-1].begin(np.arange(num_envs))
        return pools[-1], table

    yield make
    for pool in pools:
        if pool._commands:  # not closed yet: its descriptors may be somebody else's by now
            pool.close(grace_s=0)
    meter.close()


def step(pool: WorkerPool, times: int = 1) -> None:
    """Steps both environments from their slot to the other one and back."""
    for turn in range(times):
        here, there = (ENVS, ENVS + NUM_ENVS) if turn % 2 == 0 else (ENVS + NUM_ENVS, ENVS)
        pool.send(ENVS, here, there)
        pool.receive(NUM_ENVS)


def hurry(pool: WorkerPool) -> None:
    """Has the pool lose its patience soon."""
    pool._stall_s = STALL_S


def test_what_a_step_gives_is_in_the_table_when_its_reply_comes(start: Start) -> None:
    """A reply names environment and next slot; reward, flags and what follows are there by then."""
    pool, table = start("patient")
    table["action"][:] = 1
    table["reward"][:] = -1
    table["prev_action"][NUM_ENVS:] = 7
    pool.send(ENVS, ENVS, ENVS + NUM_ENVS)
    envs, slots = pool.receive(NUM_ENVS)
    assert sorted(zip(envs.tolist(), slots.tolist(), strict=True)) == [(0, NUM_ENVS), (1, NUM_ENVS + 1)]
    assert table["prev_action"][NUM_ENVS:, 0].tolist() == [1, 1]
    assert table["episode_start"].tolist() == [True, True, False, False]
    assert table["reward"][:NUM_ENVS].tolist() == [0, 0]


def test_workers_import_no_torch(start: Start) -> None:
    """No worker has a library of torch mapped; 128 of them must fit in 8 GiB."""
    pool, _ = start("patient")
    assert [path for pid in pool.pids for path in maps(pid) if "/torch/" in path] == []


def maps(pid: int) -> list[str]:
    """Files that a process has mapped."""
    return [line[73:] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]


def test_a_killed_worker_raises_with_its_name_and_signal(start: Start) -> None:
    """The rank hears of a death while it waits for replies, from this worker or another."""
    pool, _ = start("patient")
    os.kill(pool.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerDied, match="environment worker rank0-env1 was killed by SIGKILL"):
        step(pool)


def test_the_death_of_all_workers_raises_too(start: Start) -> None:
    """The reply pipe ends when the last worker does; that is no reply."""
    pool, _ = start("patient")
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
        pool.receive(1)


def test_an_exception_of_an_environment_comes_with_its_traceback(start: Start) -> None:
    """The text of the error holds the worker's own traceback, down to the line that raised."""
    pool, _ = start("raise-in-step")
    with pytest.raises(WorkerDied, match=r"(?s)rank0-env1 raised LookupError: no wall.*in _go_wrong.*LookupError"):
        step(pool, FAULT_AT)


def test_an_environment_that_never_answers_raises_with_its_stack(start: Start) -> None:
    """After `stall_s` the rank raises, and shows where in the environment the worker is."""
    pool, _ = start("sleep-in-step")
    step(pool, FAULT_AT - 1)
    hurry(pool)
    with pytest.raises(WorkerStalled, match=r"(?s)rank0-env1 has not answered for 4 s.*in _go_wrong"):
        step(pool)


def test_a_stopped_worker_raises_without_a_stack(start: Start) -> None:
    """A process that cannot even answer a signal is reported as that."""
    pool, _ = start("patient")
    os.kill(pool.pids[0], signal.SIGSTOP)
    hurry(pool)
    with pytest.raises(WorkerStalled, match=r"rank0-env0 has not answered for 4 s \(.*is it stopped\?"):
        step(pool)


def test_a_worker_that_is_killed_while_it_is_asked_for_its_stack_is_dead(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not stopped, though it leaves no stack either; it is not waited for."""
    pool, _ = start("patient")
    os.kill(pool.pids[0], signal.SIGSTOP)
    asked = process.await_stacks

    def kill_and_await(dumps: Iterable[process.StackDump]) -> None:
        os.kill(pool.pids[0], signal.SIGKILL)
        asked(dumps)

    monkeypatch.setattr(process, "await_stacks", kill_and_await)
    hurry(pool)
    with pytest.raises(WorkerDied, match="environment worker rank0-env0 was killed by SIGKILL"):
        step(pool)


def test_a_stall_is_noticed_while_others_answer(start: Start) -> None:
    """An environment that hangs is found after `stall_s`, although another's replies never cease."""
    pool, _ = start("sleep-in-step")
    step(pool, FAULT_AT - 1)
    pool.send(ENVS[1:], ENVS[1:], ENVS[1:] + NUM_ENVS)
    here = np.array([0])
    with pytest.raises(WorkerStalled, match=r"(?s)rank0-env1 has not answered for 4 s.*in _go_wrong"):  # noqa: PT012
        for number in range(60_000):  # each takes a millisecond
            if number == 10:
                hurry(pool)
            pool.send(here, here, here + NUM_ENVS)
            envs, _ = pool.receive(1)
            assert envs.tolist() == [0]


def test_a_rank_that_reads_late_accuses_nobody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is late is judged by the moment before the replies are read: what comes after it may wait in the pipe."""
    pool, _ = start("patient")
    blocked, looked = list[float](), list[float]()
    block, look = pool._block, pool._look_for_stalls

    def note_block(timeout_ms: int) -> tuple[bool, bool, list[EnvClient]]:
        blocked.append(time.perf_counter())
        return block(timeout_ms)

    def note_look(now: float) -> None:
        looked.append(now)
        look(now)

    monkeypatch.setattr(pool, "_block", note_block)
    monkeypatch.setattr(pool, "_look_for_stalls", note_look)
    step(pool, 3)
    assert len(looked) == len(blocked) >= 3
    assert all(now <= moment for now, moment in zip(looked, blocked, strict=True))


def test_a_worker_steps_several_environments(start: Start) -> None:
    """Three workers of two environments each: every environment has its own slots and episodes, and all answer."""
    pool, table = start("patient", num_envs=6, envs_per_worker=2)
    envs = np.arange(6)
    assert len(pool.pids) == len(set(pool.pids)) == 3
    table["action"][:6, 0] = [1, 0, 1, 0, 1, 0]
    pool.send(envs, envs, envs + 6)
    replied, slots = pool.receive(6)
    assert sorted(zip(replied.tolist(), slots.tolist(), strict=True)) == [(env, env + 6) for env in range(6)]
    assert table["prev_action"][6:, 0].tolist() == [1, 0, 1, 0, 1, 0]
    for first in (0, 2, 4):
        assert replied.tolist().index(first) < replied.tolist().index(first + 1), "in the order of its commands"
    pool.send(envs[3:4], envs[3:4] + 6, envs[3:4])
    assert [part.tolist() for part in pool.receive(1)] == [[3], [3]], "one alone of a worker's"


def test_workers_that_share_a_process_step_side_by_side(start: Start) -> None:
    """Of five workers in two processes one hangs in a step: the others still answer, those of its process too."""
    pool, _ = start("sleep-in-step", num_envs=5, workers_per_process=3)
    assert len(pool.pids) == len(set(pool.pids)) == 2
    envs = np.arange(5)
    for _ in range(FAULT_AT - 1):
        pool.send(envs, envs, envs + 5)
        assert sorted(pool.receive(5)[0].tolist()) == envs.tolist()
    pool.send(envs, envs, envs + 5)
    assert sorted(pool.receive(4)[0].tolist()) == [0, 2, 3, 4]
    hurry(pool)
    with pytest.raises(WorkerStalled, match=r"(?s)rank0-env0 has not answered for 4 s.*in _go_wrong"):
        pool.receive(1)


def test_a_worker_that_fails_ends_its_process(start: Start) -> None:
    """The rank hears of it at once, with the traceback, although the other workers of the process wait for commands."""
    pool, _ = start("raise-in-step", num_envs=5, workers_per_process=3)
    envs = np.arange(5)
    with pytest.raises(WorkerDied, match=r"(?s)worker rank0-env0 raised .*in _go_wrong"):  # noqa: PT012
        for _ in range(FAULT_AT):
            pool.send(envs, envs, envs + 5)
            pool.receive(5)


def test_the_environment_of_a_worker_that_hangs_is_found(start: Start) -> None:
    """Where the second of a worker's environments hangs, the worker is named and its stack shown."""
    pool, _ = start("sleep-in-step", num_envs=4, envs_per_worker=4)
    envs = np.arange(4)
    with pytest.raises(WorkerStalled, match=r"(?s)rank0-env0 has not answered for 4 s.*in _go_wrong"):  # noqa: PT012
        for number in range(FAULT_AT):
            if number == FAULT_AT - 1:
                hurry(pool)
            pool.send(envs, envs, envs + 4)
            pool.receive(4)


def test_wake_before_the_wait(start: Start) -> None:
    """A wake-up that comes before `receive` is not lost, and counts once."""
    pool, _ = start("patient")
    pool.wake()
    pool.wake()
    assert [len(part) for part in pool.receive(1)] == [0, 0]
    pool.send(ENVS, ENVS, ENVS + NUM_ENVS)
    assert sorted(pool.receive(NUM_ENVS)[0].tolist()) == [0, 1]


def test_wake_from_another_thread(start: Start) -> None:
    """A `receive` that blocks, with nobody in flight, returns nothing when another thread wakes it."""
    pool, _ = start("patient")
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(len(pool.receive(1)[0])), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    pool.wake()
    waiting.join(60)
    assert got == [0]


@pytest.mark.parametrize("variant", ["patient", "sleep-in-step"])
def test_close_leaves_no_process_and_no_pipe(start: Start, variant: str) -> None:
    """Workers that wait for commands end by themselves, one that hangs in its environment is killed."""
    start("patient")[0].close()  # the fork server is up from then on
    before = pipes()
    pool, _ = start(variant)
    workers = [psutil.Process(pid) for pid in pool.pids]
    step(pool, FAULT_AT - 1)
    pool.send(ENVS, ENVS, ENVS + NUM_ENVS)
    pool.close(grace_s=0.5)
    assert not any(worker.is_running() for worker in workers)
    assert pipes() <= before


def pipes() -> set[str]:
    """Pipes that this process has open; those of other tests may be closed at any time."""
    return {target for target in open_files() if target.startswith("pipe:")}
