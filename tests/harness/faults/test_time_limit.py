"""Processes that are stopped: nobody died, so the time limit ends the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from tests.harness.runs import FAULTY_SWEEP, RunningSweep, stop

TIME_LIMIT_S = 40
"""Long after all collect, on a machine that does other things too."""
NUM_RANKS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedOut:
    """What the sweep left."""

    record: dict[str, Any]
    exit_code: int
    left: list[psutil.Process]

    def stacks(self, of: str) -> str:
        """What a process left of its stacks."""
        path = self.record["path"] / f"stacks-{of}.txt"
        return str(path.read_text()) if path.exists() else ""


@pytest.fixture(scope="module")
def timed_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimedOut]:
    """A run of two ranks; rank 1 is stopped, and one of the two workers of rank 0."""
    options = ("--scenario", "faulty/patient", "--gpus", str(NUM_RANKS), "--time-limit", str(TIME_LIMIT_S))
    with RunningSweep(tmp_path_factory.mktemp("stopped"), *FAULTY_SWEEP, *options) as sweep:
        sweep.wait_collecting(1, NUM_RANKS)
        stop(sweep.ranks()[1])
        stop(sweep.worker(1, rank=0, env=0, num_ranks=NUM_RANKS))
        exit_code = sweep.end()
        yield TimedOut(record=sweep.runs(1)[0], exit_code=exit_code, left=sweep.processes())


def test_the_time_limit_ends_a_run_with_stopped_processes(timed_out: TimedOut) -> None:
    """A stopped rank and a stopped worker cannot outlast --time-limit; they end with the run."""
    assert timed_out.record["status"] == "timed-out", timed_out.record["reason"]
    assert timed_out.record["reason"].startswith(f"not over after {TIME_LIMIT_S} s (--time-limit)")
    assert timed_out.exit_code == 1
    assert timed_out.left == []


def test_a_timed_out_run_keeps_the_stacks_of_its_processes(timed_out: TimedOut) -> None:
    """Ranks and workers say where they were, also those that were stopped, which are said to have been."""
    assert "rank_loop.py" in timed_out.stacks("rank0")
    assert "worker.py" in timed_out.stacks("rank0-env1")
    assert "worker.py" in timed_out.stacks("rank1-env0")
    assert "rank_loop.py" in timed_out.stacks("rank1")
    assert "worker.py" in timed_out.stacks("rank0-env0")
    processes = (timed_out.record["path"] / "processes.txt").read_text().splitlines()
    stopped = {line.split()[-1] for line in processes if " stopped " in line}
    assert stopped == {"rank1", "rank0-env0"}


def test_a_timed_out_run_keeps_its_counts(timed_out: TimedOut) -> None:
    """What was collected before the stop is in the record."""
    assert timed_out.record["counters"]["env_steps"] >= 2 * NUM_RANKS
