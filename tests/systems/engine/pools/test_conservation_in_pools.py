"""Systems whose environments act by themselves, on pools that answer out of order, with real workers.

Each environment logs what it did itself; what was learned is compared with that, to the sample.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.system_list import CannotRun
from tests.harness.runs import PATIENCE_S, has_ended, wait_until
from tests.systems.engine.cells import leave_cell, run_in_turn
from tests.systems.engine.doubles import Ran, all_ways, log_path
from tests.systems.engine.pools.pooled import (
    LOG,
    NUM_ENVS,
    PER_POOL,
    pooled_cell,
    read_log,
    record_pooled,
    registered,
)
from tests.systems.engine.ranks import start_ranks, words_for
from tests.systems.engine.recorded import Recorded

STREAM = "collect=dynamic:rollout.num_steps=4:rollout.batch=32"
APPO = f"appo:{STREAM}"
SYSTEMS = (APPO, "ver", "ver:overlap=oneahead", "ver:preempt=never:collect.min_batch=2", f"{APPO}:average=allreduce")
WAYS = [(system, num_ranks) for system in SYSTEMS for num_ranks in (1, 2)]
ALL = "answer for all 4"
REFUSED = {
    "sync": f"need collect=dynamic, or pools that {ALL}",
    "appo": f"need collect=dynamic, or pools that {ALL}",
    "nover": f"need rollout=variable or overlap=continuous, which carry steps over; or pools that {ALL}",
    "appo:collect=dynamic:overlap=alternate": "need rollout=variable or overlap=continuous",
    "impala": "need collect=dynamic",
    "ver:collect.min_batch=7": "collect.min_batch=7: must be at most 6, since pools that answer for 2 of 4",
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, int]], Ran]:
    """All ways."""

    def cell_of(way: tuple[str, int], logs: Path) -> Cell:
        return pooled_cell(way[0], logs, gpus=way[1])

    make = functools.partial(tmp_path_factory.mktemp, "ran")
    return all_ways(WAYS, make, cell_of, record_pooled, NUM_ENVS, lambda system: system == APPO)


@pytest.mark.parametrize("way", WAYS)
def test_every_step_is_learned_discarded_or_in_flight(ran: Callable[[Any], Ran], way: tuple[str, int]) -> None:
    """What was received = learned + discarded + in flight; at the end each environment may have done one step more."""
    left = ran(way)
    counted = left.of_each("env_steps")
    done = [len(read_log(left.logs, number)) for number in range(len(counted))]
    assert min(counted) > 0
    assert {logged - received for logged, received in zip(done, counted, strict=True)} <= {0, 1}
    left.check_fates()


@pytest.mark.parametrize("system", SYSTEMS)
def test_samples_are_what_their_environments_did(ran: Callable[[Any], Ran], system: str) -> None:
    """What is learned of an environment is what it logged, step by step; no step that only reset it is among it."""
    left = ran((system, 1))
    for number in range(NUM_ENVS):
        samples, log = left.samples(number), read_log(left.logs, number)
        num = len(samples["reward"])
        assert 0 < num <= len(log)
        log = log[:num]
        assert np.array_equal(samples["obs/where"], log["before"])
        for name in ("action", "reward", "terminated"):
            assert np.array_equal(samples[name].reshape(num), log[name])
        assert np.array_equal(samples["truncated"], (log["truncated"] > 0) & ~(log["terminated"] > 0))
        ended = (log["terminated"] > 0) | (log["truncated"] > 0)
        starts = np.concatenate(([True], ended[:-1]))
        assert np.array_equal(samples["episode_start"], starts)
        goes_on = ~starts[1:]
        assert np.array_equal(samples["prev_action"][1:][goes_on], samples["action"][:-1][goes_on])
        lengths = np.diff(np.flatnonzero(ended), prepend=-1)
        assert np.array_equal(samples["episode"][ended, 1], lengths)


@pytest.mark.parametrize("system", REFUSED)
def test_what_cannot_carry_steps_over_says_so(system: str, tmp_path: Path) -> None:
    """In one line, before anything is started; whole pools are batches to all of them but actors with a policy."""
    with pytest.raises(CannotRun, match=REFUSED[system]) as refused:
        pooled_cell(system, tmp_path).load()
    assert "\n" not in str(refused.value)
    if system in {"sync", "appo", "nover"}:
        pooled_cell(system, tmp_path, more=":envs_per_recv=4").load()
    with pytest.raises(CannotRun, match="pools that answer for 3 of 4 environments at a time: the former must divide"):
        pooled_cell("ver", tmp_path, more=":envs_per_recv=3").load()


def test_whole_pools_are_stepped_in_lockstep(tmp_path: Path) -> None:
    """A pool that answers for all is a batch, and its steps are conserved."""
    (tmp_path / "logs").mkdir()
    cell = pooled_cell("sync", tmp_path / "logs", more=":envs_per_recv=4", iterations=3)
    run = Recorded(run_in_turn(tmp_path, {"whole": cell}, 1, record_pooled)["whole"].folder)
    left = Ran(run=run, logs=tmp_path, num_each=NUM_ENVS)
    counted = left.of_each("env_steps")
    assert counted == [len(read_log(tmp_path / "logs", number)) for number in range(NUM_ENVS)]
    left.check_fates()


def test_a_killed_worker_ends_the_run(tmp_path: Path) -> None:
    """The run says which worker was killed, and how, and ends."""
    logs = tmp_path / "logs"
    logs.mkdir()
    run = leave_cell(tmp_path / "run", pooled_cell("ver", logs, iterations=1_000_000))
    (rank,) = start_ranks(words_for(record_pooled, run.folder), 1)
    try:
        last = log_path(logs, NUM_ENVS - 1)
        wait_until(lambda: last.exists() and last.stat().st_size > 20 * LOG.itemsize, "the environments step")
        worker = psutil.Process(int(last.with_suffix(".pid").read_text()))
        worker.send_signal(signal.SIGKILL)
        printed = rank.communicate(timeout=PATIENCE_S)[0].decode()
    finally:
        rank.close()
    assert rank.returncode == 1
    assert f"environment worker rank0-env{NUM_ENVS - PER_POOL} was killed by SIGKILL" in printed


def test_a_killed_rank_takes_its_pools_with_it(tmp_path: Path) -> None:
    """However many of their environments are in flight."""
    logs = tmp_path / "logs"
    logs.mkdir()
    run = leave_cell(tmp_path / "run", pooled_cell("ver", logs, iterations=1_000_000))
    (rank,) = start_ranks(words_for(record_pooled, run.folder), 1)
    try:
        last = log_path(logs, NUM_ENVS - 1)
        wait_until(lambda: last.exists() and last.stat().st_size > 20 * LOG.itemsize, "the environments step")
        worker = psutil.Process(int(last.with_suffix(".pid").read_text()))
        rank.kill()
        wait_until(lambda: has_ended(worker), "the worker ends")
    finally:
        rank.close()


@pytest.mark.parametrize("recv", [1, 2])
def test_an_environment_that_does_not_answer_ends_the_run(recv: int, tmp_path: Path) -> None:
    """Even while others of its pool answer."""
    logs = tmp_path / "logs"
    logs.mkdir()
    more = f":stuck=6:envs_per_recv={recv}"
    run = leave_cell(tmp_path / "run", pooled_cell("ver", logs, iterations=1_000_000, more=more, stall_s=4.0))
    (rank,) = start_ranks(words_for(record_pooled, run.folder), 1)
    try:
        printed = rank.communicate(timeout=PATIENCE_S)[0].decode()
    finally:
        rank.close()
    assert rank.returncode == 1
    assert f"environment worker rank0-env{PER_POOL} has not answered for 4 s" in printed


@pytest.mark.parametrize("thread", ["send", "recv"])
def test_what_either_thread_raises_comes_with_its_traceback(thread: str, tmp_path: Path) -> None:
    """The rank ends with it, whatever the other thread does."""
    logs = tmp_path / "logs"
    logs.mkdir()
    run = leave_cell(tmp_path / "run", pooled_cell("ver", logs, iterations=1_000_000, more=f":fails={thread}"))
    (rank,) = start_ranks(words_for(record_pooled, run.folder), 1)
    try:
        printed = rank.communicate(timeout=PATIENCE_S)[0].decode()
    finally:
        rank.close()
    assert rank.returncode == 1
    assert f"environment worker rank0-env{PER_POOL} raised LookupError" in printed
    assert f"in {thread}\n" in printed
