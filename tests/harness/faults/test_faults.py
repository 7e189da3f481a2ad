"""Death of each kind of process, one in each cell of one sweep."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.descriptors import open_files
from tests.harness.chosen import chosen
from tests.harness.runs import END_LIMIT_S, FAULTY_SWEEP, RunningSweep, wait_until
from tests.lanes import deep

NUM_RANKS = 2


def _worker(sweep: RunningSweep, number: int) -> psutil.Process:
    return sweep.worker(number, rank=1, env=0, num_ranks=NUM_RANKS)


def _rank(sweep: RunningSweep, number: int) -> psutil.Process:
    del number
    return sweep.ranks()[1]


def _keeper(sweep: RunningSweep, number: int) -> psutil.Process:
    del number
    return sweep.of_module("rlbench.harness.run.keeper")[0]


def _fork_server(sweep: RunningSweep, number: int) -> psutil.Process:
    del number
    return sweep.fork_server(1)


def _worker_of_waiting_rank(sweep: RunningSweep, number: int) -> psutil.Process:
    """Stops rank 1, so that rank 0 waits for it in an all-reduce and not for its workers."""
    sweep.ranks()[1].send_signal(signal.SIGSTOP)
    meter = sweep.meters(number, NUM_RANKS)[0]
    wait_until(lambda: meter.phase() in {"wait:straggler", "communicate"}, "rank 0 waits for rank 1")
    return sweep.worker(number, rank=0, env=1, num_ranks=NUM_RANKS)


VICTIMS: dict[str, tuple[Callable[[RunningSweep, int], psutil.Process], str]] = {
    "worker": (_worker, "rank 1: WorkerDied: environment worker rank1-env0 was killed by SIGKILL"),
    "rank": (_rank, "rank 1 was killed by SIGKILL"),
    "keeper": (_keeper, "the keeper of the run was killed by SIGKILL"),
    "fork-server": (_fork_server, "rank 1: WorkerDied: environment worker rank1-env"),
    "worker-of-waiting-rank": (
        _worker_of_waiting_rank,
        "rank 0: WorkerDied: environment worker rank0-env1 was killed by SIGKILL",
    ),
}
NAMES = [pytest.param(name, marks=[deep] if name == "worker" else []) for name in VICTIMS]
"""A worker of a rank that waits is killed as one of a rank that collects; both in the deep lane."""
STARTING = "rank-that-starts"
RAISES = "raises-before-the-group"


@dataclass(frozen=True, kw_only=True, slots=True)
class Faults:
    """What one sweep left, and how long its runs outlived a death, in seconds, by victim."""

    records: dict[str, dict[str, Any]]
    outlived_s: dict[str, float]
    num_fds: list[int]
    """Open files of the runner while each cell that collected was running."""
    memory_bytes: list[int]
    """Private memory of the runner, likewise."""
    exit_code: int
    last: dict[str, Any]
    left: list[psutil.Process]
    files: list[Path]
    stderr: str


def _kept_open(process: psutil.Process, most: int) -> int:
    """Files that a process keeps open; as it opens others for a moment, it is waited for that they are `most` again."""
    fewest = process.num_fds()

    def is_as_before() -> bool:
        nonlocal fewest
        fewest = min(fewest, process.num_fds())
        return fewest <= most

    with suppress(AssertionError):
        wait_until(is_as_before, "what was opened is closed")
    return fewest


def _wait_for_meters(runner: psutil.Process, sweep: RunningSweep, number: int) -> None:
    """Until the runner reads all meters of a cell: from then on it opens nothing more for it."""
    folder = sweep.partial(number)
    assert folder is not None
    of_cell = f"/{folder.name}/meter-rank"
    wait_until(lambda: sum(of_cell in name for name in open_files(runner.pid)) == NUM_RANKS, "the runner reads meters")


@pytest.fixture(scope="module")
def faults(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """A sweep of two ranks, in whose cells one process after the other is killed; the last cell is left alone."""
    folder = tmp_path_factory.mktemp("faults")
    victims = [name for name in chosen(request, "name") if name in VICTIMS]
    patient = [f"faulty/patient:tag={name}" for name in (*victims, STARTING)]
    scenarios = ",".join([*patient, "faulty/raise-on-rank-1", "faulty/patient:tag=last"])
    records, outlived_s = {}, {}
    num_fds: list[int] = []
    memory: list[int] = []
    with RunningSweep(folder, *FAULTY_SWEEP, "--gpus", str(NUM_RANKS), "--scenario", scenarios) as sweep:
        runner = psutil.Process(sweep.process.pid)
        for number, name in enumerate(victims, start=1):
            sweep.wait_collecting(number, NUM_RANKS)
            _wait_for_meters(runner, sweep, number)
            num_fds.append(min(runner.num_fds() for _ in range(100)) if number <= 2 else _kept_open(runner, num_fds[1]))
            memory.append(runner.memory_full_info().uss)
            outlived_s[name] = sweep.kill(VICTIMS[name][0](sweep, number), number)
            records[name] = sweep.wait_published(number)
        number = len(victims) + 1
        wait_until(lambda: sweep.partial(number) and _forks(sweep), "rank 1 forks its workers")
        outlived_s[STARTING] = sweep.kill(sweep.ranks()[1], number)
        records[STARTING] = sweep.wait_published(number)
        records[RAISES] = sweep.wait_published(number + 1)
        sweep.wait_collecting(number + 2, NUM_RANKS)
        _wait_for_meters(runner, sweep, number + 2)
        num_fds.append(_kept_open(runner, num_fds[1]))
        memory.append(runner.memory_full_info().uss)
        sweep.release("last")
        exit_code = sweep.end()
        yield Faults(
            records=records,
            outlived_s=outlived_s,
            num_fds=num_fds,
            memory_bytes=memory,
            exit_code=exit_code,
            last=sweep.runs(number + 2)[0],
            left=sweep.processes(),
            files=sweep.files_left(),
            stderr=sweep.stderr,
        )


def _forks(sweep: RunningSweep) -> bool:
    """Whether rank 1 has a fork server, which is starting or has forked; it goes on to its first step from there."""
    with suppress(psutil.Error, KeyError, StopIteration):
        return sweep.fork_server(1).is_running()
    return False


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_process_ends_its_run_as_failed_with_its_name_and_signal(faults: Faults, name: str) -> None:
    """The reason of the run names who was killed, and by what."""
    record = faults.records[name]
    assert record["status"] == "failed"
    assert record["reason"].startswith(VICTIMS[name][1])
    assert "SIGKILL" in record["reason"]


@deep
@pytest.mark.parametrize("name", [*VICTIMS, STARTING])
def test_no_process_of_a_run_outlives_a_death_for_long(faults: Faults, name: str) -> None:
    """Wherever a process dies, all others of its run are gone soon."""
    assert faults.outlived_s[name] < END_LIMIT_S


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_run_keeps_what_it_had_counted(faults: Faults, name: str) -> None:
    """Env steps of every environment are in the record of a run that was killed."""
    assert faults.records[name]["counters"]["env_steps"] >= 2 * NUM_RANKS
    assert faults.records[name]["counters"]["frames"] >= 2 * NUM_RANKS


def test_a_rank_that_dies_while_it_forks_its_workers_fails_the_run(faults: Faults) -> None:
    """A death during start-up, before any environment is there, is reported like any other."""
    assert faults.records[STARTING]["status"] == "failed"
    assert faults.records[STARTING]["reason"].startswith("rank 1 was killed by SIGKILL")


def test_a_rank_that_raises_before_the_group_is_formed_fails_the_run(faults: Faults) -> None:
    """The other rank, which waits for it at the rendezvous, does not keep the run alive; the traceback is kept."""
    record = faults.records[RAISES]
    assert record["status"] == "failed"
    assert record["reason"] == "rank 1: RuntimeError: rank 1 has no actions"
    assert "in action_space" in (record["path"] / "traceback.txt").read_text()


def test_the_sweep_goes_on_after_every_death_and_exits_with_1(faults: Faults) -> None:
    """The last cell finishes, nothing is left, and nothing is printed as a traceback."""
    assert faults.last["status"] == "finished"
    assert faults.exit_code == 1
    assert faults.left == []
    assert faults.files == []
    assert "Traceback" not in faults.stderr


def test_the_runner_does_not_grow_from_cell_to_cell(faults: Faults) -> None:
    """After the first cells, open files are no more, and memory within 20 MB, however the cells end."""
    assert max(faults.num_fds[2:]) <= faults.num_fds[1], faults.num_fds
    assert max(faults.memory_bytes[1:]) - faults.memory_bytes[1] < 20e6, faults.memory_bytes
