"""Processes that are stopped and memory that leaks: nobody dies, and the run ends within its limits all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.runs import FAULTY_SWEEP, RunningSweep, stop, wait_until

STALL_S = 5
LIMIT_S = 25
NUM_RANKS = 2
MEMORY_GIB = 1.0
"""Four times what a run has for itself that does not leak, and less than its workers leak."""
SCENARIOS = "faulty/patient:tag=rank,faulty/patient:tag=worker,faulty/leak-in-step"


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What the sweep left."""

    rank: dict[str, Any]
    worker: dict[str, Any]
    leak: dict[str, Any]
    exit_code: int
    left: list[psutil.Process]
    files: list[Path]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """A rank is stopped, then a worker, then a worker leaks."""
    options = ("--gpus", str(NUM_RANKS), "--stall", str(STALL_S), "--memory-limit", str(MEMORY_GIB))
    folder = tmp_path_factory.mktemp("stalls")
    with RunningSweep(folder, *FAULTY_SWEEP, *options, "--scenario", SCENARIOS) as sweep:
        sweep.wait_collecting(1, NUM_RANKS)
        stop(sweep.ranks()[1])
        sweep.wait_collecting(2, NUM_RANKS)
        stop(sweep.worker(2, rank=1, env=0, num_ranks=NUM_RANKS))
        exit_code = sweep.end(3)
        records = [sweep.runs(number)[0] for number in range(1, 4)]
        yield Swept(
            **dict(zip(("rank", "worker", "leak"), records, strict=True)),
            exit_code=exit_code,
            left=sweep.processes(),
            files=sweep.files_left(),
        )


def _stacks(record: dict[str, Any], of: str) -> str:
    return str((record["path"] / f"stacks-{of}.txt").read_text())


def test_a_stopped_rank_ends_the_run_within_its_limit(swept: Swept) -> None:
    """Nobody died, and all wait: the run fails, says who is stopped, and keeps the stacks of all."""
    assert swept.rank["status"] == "failed"
    reason = r"nothing was stepped or learned for (\d+) s \(--stall\); stopped by a signal: rank 1; stacks are in"
    found = re.match(reason, swept.rank["reason"])
    assert found, swept.rank["reason"]
    assert int(found[1]) >= LIMIT_S  # later where the machine does other things
    assert "rank_loop.py" in _stacks(swept.rank, "rank0")
    assert "rank_loop.py" in _stacks(swept.rank, "rank1")
    assert "worker.py" in _stacks(swept.rank, "rank1-env1")
    assert " stopped " in (swept.rank["path"] / "processes.txt").read_text()


def test_a_stopped_worker_ends_the_run_within_its_limit(swept: Swept) -> None:
    """The rank whose worker it is names it; where it stood is in the folder, like the stacks of the others."""
    assert swept.worker["status"] == "failed"
    said = f"rank 1: WorkerStalled: environment worker rank1-env0 has not answered for {STALL_S} s (its process did"
    assert swept.worker["reason"].startswith(said)
    other = swept.worker["path"] / "stacks-rank0.txt"
    assert not other.exists() or " (most recent call first):" in other.read_text()  # it may be about to end too


def test_a_leaking_worker_ends_the_run_at_its_limit(swept: Swept) -> None:
    """The run fails before the kernel ends something of its own choice, and says which process had most."""
    assert swept.leak["status"] == "failed"
    said = f"GiB of memory, more than {MEMORY_GIB:.2f} GiB (--memory-limit); environment worker rank"
    assert said in swept.leak["reason"]
    assert "worker.py" in _stacks(swept.leak, "rank0-env1")


def test_the_sweep_goes_on_and_leaves_nothing(swept: Swept) -> None:
    """The cells after a stalled one ran; no process and no file is left."""
    assert swept.leak["counters"]["env_steps"] > 0
    assert (swept.exit_code, swept.left, swept.files) == (1, [], [])


def test_gossip_goes_on_without_a_rank_that_stands_still(tmp_path: Path) -> None:
    """A stopped rank is ended as if it had died; the others finish, and the record says what became of it."""
    options = (
        "--device",
        "cpu",
        "--systems",
        "gossip",
        "--gpus",
        "3",
        "--scenario",
        "faulty/patient:tag=a:step_s=0.02",
    )
    with RunningSweep(tmp_path, *options, "--until", "return>=0.5", "--stall", str(STALL_S)) as sweep:
        sweep.wait_collecting(1, 3)
        meters = sweep.meters(1, 3)
        wait_until(lambda: min(meter.count(0, "iteration") for meter in meters) >= 4, "all learn")
        stop(sweep.ranks()[1])
        wait_until(lambda: "rank 1 stood still for" in sweep.stderr, "it is said")
        sweep.release("a")
        record = sweep.wait_published(1)
        assert sweep.end() == 0
        assert (sweep.processes(), sweep.files_left()) == ([], [])
    assert (record["status"], record["reason"]) == ("finished", None)
    (warning,) = [warning for warning in record["warnings"] if warning.startswith("rank 1")]
    assert "s (--stall) and was ended in iteration" in warning
    assert "rank_loop.py" in _stacks(record, "rank1")
