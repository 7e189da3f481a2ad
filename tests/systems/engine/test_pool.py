from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from harness.budget import Limits
from harness.contract import Context, Place
from harness.meter import RankMeter
from systems.engine.pool import WorkerDied, WorkerPool, WorkerStalled
from systems.engine.tables import Table, rollout_columns
from tests.harness.faulty_scenario import FAULT_AT, FaultyFamily
from tests.scenarios.seats import PlainDevice

NUM_ENVS = 2
NUM_SLOTS = 2 * NUM_ENVS
ENVS = np.arange(NUM_ENVS)
STALL_S = 1.0

Start = Callable[[str], tuple[WorkerPool, Table]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts pools on variants of `faulty`; environment n stands in slot n. Closes what its test has not."""
    pools: list[WorkerPool] = []
    meter = RankMeter(tmp_path, 0, NUM_ENVS)

    def make(variant: str) -> tuple[WorkerPool, Table]:
        scenario = FaultyFamily().make(variant, "homogeneous")
        table = Table(rollout_columns(scenario.observation_space, NUM_ENVS, NUM_SLOTS, state_size=1))
        context = Context(
            place=Place(rank=0, num_ranks=1, local_rank=0),
            scenario=scenario,
            device=PlainDevice("cpu"),
            seed=0,
            budget=Limits(iterations=1),
            meter=meter,
            folder=str(tmp_path),
            stall_s=STALL_S,
        )
        pools.append(WorkerPool(context, table, range(NUM_ENVS)))
        pools[-1].begin(ENVS)
        return pools[-1], table

    yield make
    for pool in pools:
        with suppress(OSError):  # closed already
            pool.close(grace_s=0)
    meter.close()


def step(pool: WorkerPool, times: int = 1) -> None:
    """Steps both environments from their slot to the other one and back."""
    for turn in range(times):
        here, there = (ENVS, ENVS + NUM_ENVS) if turn % 2 == 0 else (ENVS + NUM_ENVS, ENVS)
        pool.send(ENVS, here, there)
        pool.wait(NUM_ENVS)


def test_what_a_step_gives_is_in_the_table_when_its_reply_comes(start: Start) -> None:
    """A reply names environment and next slot; reward, flags and what follows are there by then."""
    pool, table = start("patient")
    table["action"][:] = 1
    table["reward"][:] = -1
    table["prev_action"][NUM_ENVS:] = 7
    pool.send(ENVS, ENVS, ENVS + NUM_ENVS)
    replies = pool.wait(NUM_ENVS)
    assert sorted(map(tuple, replies.tolist())) == [(0, NUM_ENVS), (1, NUM_ENVS + 1)]
    assert table["prev_action"].tolist() == [-1, -1, 1, 1]
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
        pool.wait(1)


def test_an_exception_of_an_environment_comes_with_its_traceback(start: Start) -> None:
    """The text of the error holds the worker's own traceback, down to the line that raised."""
    pool, _ = start("raise-in-step")
    with pytest.raises(WorkerDied, match=r"(?s)rank0-env1 raised LookupError: no wall.*in _go_wrong.*LookupError"):
        step(pool, FAULT_AT)


def test_an_environment_that_never_answers_raises_with_its_stack(start: Start) -> None:
    """After `stall_s` the rank raises, and shows where in the environment the worker is."""
    pool, _ = start("sleep-in-step")
    with pytest.raises(WorkerStalled, match=r"(?s)rank0-env1 has not answered for 1 s.*in _go_wrong"):
        step(pool, FAULT_AT)


def test_a_stopped_worker_raises_without_a_stack(start: Start) -> None:
    """A process that cannot even answer a signal is reported as that."""
    pool, _ = start("patient")
    os.kill(pool.pids[0], signal.SIGSTOP)
    with pytest.raises(WorkerStalled, match=r"rank0-env0 has not answered for 1 s \(.*is it stopped\?"):
        step(pool)


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
    assert pipes() == before


def pipes() -> list[str]:
    """Pipes that this process has open."""
    targets = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder's own
            targets.append(str(fd.readlink()))
    return sorted(target for target in targets if target.startswith("pipe:"))
