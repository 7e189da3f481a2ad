"""Environments of somebody else's that go wrong: what the run's record says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from tests.harness.chosen import chosen
from tests.harness.runs import FAULTY_SWEEP, RunningSweep
from tests.lanes import deep

STALL_S = 8
DIED = "rank 0: WorkerDied: environment worker rank0-env1 "
STALLED = f"rank 0: WorkerStalled: environment worker rank0-env1 has not answered for {STALL_S} s"
FAULTS = {
    "raise-in-step": (DIED + "raised LookupError: no wall behind the wall", "in _go_wrong"),
    "raise-in-reset": (DIED + "raised LookupError: no map for a reset", "in reset"),
    "nan-reward": (DIED + "raised ValueError: environment 1 gave the reward nan: it must be finite", "in step"),
    "nan-observation": (DIED + "raised ValueError: observation 'vector' holds nan: it must", "in _write_observation"),
    "wrong-shape": (DIED + "raised ValueError: observation 'vector' has shape (4,)", "in _write_observation"),
    "exit-in-step": (DIED + "exited with 7", "WorkerDied"),
    "sleep-in-step": (STALLED, "in _go_wrong"),
    "spin-in-step": (STALLED, "in _go_wrong"),
}
"""What the reason begins with, and what traceback.txt shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What a sweep over all faults left."""

    records: dict[str, dict[str, Any]]
    exit_code: int
    left: list[psutil.Process]
    stderr: str


IN_BOTH_LANES = ("raise-in-step", "nan-observation", "exit-in-step", "sleep-in-step")
"""One for each part of the system that finds it: the worker's step, what the step gave, the process, and time."""
CELLS = [pytest.param(fault, marks=[] if fault in IN_BOTH_LANES else [deep]) for fault in FAULTS]


@pytest.fixture(scope="module")
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """One cell for each fault."""
    faults = chosen(request, "fault")
    options = (*FAULTY_SWEEP, "--stall", str(STALL_S), "--scenario", ",".join(f"faulty/{fault}" for fault in faults))
    with RunningSweep(tmp_path_factory.mktemp("environments"), *options) as sweep:
        yield Swept(
            exit_code=sweep.end(len(faults)),
            records={fault: sweep.runs(number)[0] for number, fault in enumerate(faults, start=1)},
            left=sweep.processes(),
            stderr=sweep.stderr,
        )


@pytest.mark.parametrize("fault", CELLS)
def test_the_reason_of_a_failed_run_says_what_its_environment_did(swept: Swept, fault: str) -> None:
    """An environment that raises, lies, exits or never answers fails the run; the reason says which one and how."""
    assert swept.records[fault]["status"] == "failed"
    assert swept.records[fault]["reason"].startswith(FAULTS[fault][0])


@pytest.mark.parametrize("fault", CELLS)
def test_the_run_folder_shows_where_the_environment_was(swept: Swept, fault: str) -> None:
    """traceback.txt holds the worker's own traceback, or its stack when it never answered."""
    text = (swept.records[fault]["path"] / "traceback.txt").read_text()
    assert FAULTS[fault][1] in text


def test_a_sweep_of_failing_cells_runs_them_all_and_exits_with_1(swept: Swept) -> None:
    """One line for each cell and none for us: no traceback is printed, no process is left."""
    assert swept.exit_code == 1
    assert swept.left == []
    assert "Traceback" not in swept.stderr


def test_the_failing_step_is_counted(swept: Swept) -> None:
    """Counters of a failed run hold what was collected up to the fault, on both environments."""
    for fault in {"nan-reward", "nan-observation", "wrong-shape"} & swept.records.keys():
        assert swept.records[fault]["counters"]["env_steps"] in {39, 40}  # 20 of the faulty one, 19 or 20 of the other
