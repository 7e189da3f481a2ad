"""Rollouts of long steps, which `--seconds` ends: one cell for each way of collecting, learning and agreeing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlbench.results.records.store import read_runs
from tests.harness.chosen import chosen
from tests.harness.runs import RunningSweep
from tests.lanes import deep

NUM_RANKS, NUM_ENVS = 2, 2
STREAM = "rollout.num_steps=8:rollout.batch=32"
LATER = (
    "sync",
    pytest.param("ver", marks=deep),
    pytest.param("htsrl", marks=deep),
    pytest.param("gossip", marks=deep),
    pytest.param("downpour", marks=deep),
    pytest.param(f"appo:{STREAM}", marks=deep),
    pytest.param(f"impala:{STREAM}", marks=deep),
    f"appo:average=allreduce:{STREAM}",
)
"""Their first iterations end before steps become slow."""
AT_ONCE = (
    "sync:rollout.num_steps=999",
    pytest.param("htsrl:rollout.num_steps=999", marks=deep),
    pytest.param("gossip:rollout.num_steps=999", marks=deep),
    pytest.param("appo", marks=deep),
)
"""Steps become slow in their first rollout."""
SECONDS = 5
"""So long that the steps before the slow ones are over by then, on a machine that does other things too."""
MOST_IN_ONE = 4
"""Cells of one sweep: it waits most of the time, but its start takes more of a computer than a cell."""
MOST_STEPS = 19 + 30
"""Of an environment: those before, and more slow ones than any computer makes in the time; a rollout has 999."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What the sweeps left."""

    records: dict[str, dict[str, Any]]
    left: list[psutil.Process]
    files: list[Path]
    exit_codes: list[int]
    expected_codes: list[int]
    """By what became of their cells."""


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """A sweep, whose environments take a second for each step from the 20th on; of many cells, two at once."""
    seconds = ("--seconds", str(SECONDS))
    options = ("--device", "cpu", "--gpus", str(NUM_RANKS), *seconds, "--scenario", "faulty/slow-step")
    systems = chosen(request, "system")
    at_once = [system for system in systems if system == "appo" or "=999" in system]
    later = [system for system in systems if system not in at_once]
    both = [half for half in (later, at_once) if half] if len(systems) > MOST_IN_ONE else [systems]
    with ExitStack() as stack:
        sweeps = [
            stack.enter_context(RunningSweep(tmp_path_factory.mktemp("slow"), *options, "--systems", ",".join(half)))
            for half in both
        ]
        exit_codes = [sweep.end(len(half)) for sweep, half in zip(sweeps, both, strict=True)]
        yield Ended(
            records={
                system: sweep.runs(number)[0]
                for sweep, half in zip(sweeps, both, strict=True)
                for number, system in enumerate(half, start=1)
            },
            left=[process for sweep in sweeps for process in sweep.processes()],
            files=[path for sweep in sweeps for path in sweep.files_left()],
            exit_codes=exit_codes,
            expected_codes=[
                int(any(sweep.runs(number)[0]["status"] != "finished" for number in range(1, 1 + len(half))))
                for sweep, half in zip(sweeps, both, strict=True)
            ],
        )


@pytest.mark.parametrize("system", LATER)
def test_a_rollout_under_way_ends_with_the_time(ended: Ended, system: str) -> None:
    """The run is finished with the iterations that ended; what was collected since is in flight, to the step."""
    record = ended.records[system]
    assert record["status"] == "finished", record["reason"]
    (run,) = read_runs(record["path"])
    counters = run.record.counters
    assert counters.conserved
    assert counters.learned
    assert counters.in_flight or run.parts[-1].end_s >= SECONDS  # the time was over with an iteration
    assert counters.env_steps < MOST_STEPS * NUM_RANKS * NUM_ENVS


@pytest.mark.parametrize("system", AT_ONCE)
def test_a_run_without_an_iteration_says_so(ended: Ended, system: str) -> None:
    """A first rollout that is broken off leaves nothing to measure: the run is invalid, and all is in flight."""
    record = ended.records[system]
    assert record["status"] == "invalid"
    said = f"no iteration ended within --seconds {SECONDS}, nor soon after: nothing to measure"
    assert record["reason"].startswith(said)
    counters = record["counters"]
    assert (counters["learned"], counters["in_flight"]) == (0, counters["env_steps"])
    assert 0 < counters["env_steps"] < MOST_STEPS * NUM_RANKS * NUM_ENVS


def test_runs_of_slow_steps_leave_nothing(ended: Ended) -> None:
    """No process and no file is left; a cell without figures has failed."""
    assert (ended.left, ended.files, ended.exit_codes) == ([], [], ended.expected_codes)
