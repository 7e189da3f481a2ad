from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.machine.telemetry import Readings
from rlbench.harness.plan.cells import Cell
from rlbench.harness.processes.outcome import Outcome
from rlbench.harness.run import end_of_run
from rlbench.harness.run.end_of_run import Ended, failed, preface, record_run
from rlbench.results.records.store import load_run, write_run


def cell_of(scenario: str = "emulated/open-fridge") -> Cell:
    """A cell that nobody runs."""
    return Cell(
        system="sync",
        scenario=scenario,
        scenario_settings={"num_envs": "2"},
        workload="homogeneous",
        gpus=1,
        seed=0,
        device="cpu",
        protocol="ddppo",
        limits=Limits(iterations=1),
        stall_s=60.0,
        time_limit_s=60.0,
    )


def ended(outcome: Outcome) -> Ended:
    """How its run ended."""
    system, scenario = cell_of().load()
    return Ended(
        cell=cell_of(),
        system=system,
        scenario=scenario,
        outcome=outcome,
        telemetry=Readings([], 0, None),
        began_s=0.0,
        duration_s=3.0,
    )


def known() -> dict[str, Any]:
    """What its record says in any case."""
    return preface("001", "sweep-1", cell_of(), ["rlbench"], {})


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome("finished"), "it ended well"),
        (Outcome("timed-out", "not over after 3 s", "a traceback"), "it ended as timed-out: not over after 3 s"),
    ],
)
def test_an_error_while_a_record_is_made_yields_a_record_that_says_so(
    outcome: Outcome, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is failed, the reason has the error and how the run ended, and both tracebacks are in its folder."""

    def fail(*_: object) -> None:
        raise ArithmeticError("nobody thought of that \udcff")

    monkeypatch.setattr(end_of_run, "measure", fail)
    record = record_run(known(), tmp_path, ended(outcome))
    assert record.status == "failed"
    assert record.reason == rf"ArithmeticError: nobody thought of that \udcff, while its record was made; {said}"
    text = (tmp_path / "traceback.txt").read_text()
    assert "in fail" in text
    assert (outcome.traceback or "") in text
    write_run(tmp_path, record)
    assert load_run(tmp_path).record == record


def test_counters_that_no_record_can_hold_fail_the_run_alone(tmp_path: Path) -> None:
    """A series whose numbers are no numbers is a failed run, with what is wrong with it."""
    (tmp_path / "series-rank0.jsonl").write_text(json.dumps({"rank": 0, "begin_s": "soon"}) + "\n")
    record = record_run(known(), tmp_path, ended(Outcome("finished")))
    assert record.status == "failed"
    assert record.reason is not None
    assert ", while its record was made; it ended well" in record.reason


def test_a_full_disk_is_no_fault_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be written, no record can be: that ends the sweep."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(end_of_run, "measure", fail)
    with pytest.raises(OSError, match="No space left"):
        record_run(known(), tmp_path, ended(Outcome("finished")))


def test_a_cell_that_cannot_be_loaded_any_more_has_a_record_all_the_same(tmp_path: Path) -> None:
    """A profile that is gone since the sweep was planned leaves what was asked for in the record."""
    gone = preface("001", "sweep-1", cell_of("emulated/gone.toml"), ["rlbench"], {"num_cores": 2})
    record = failed(gone, "gone.toml: there is no such file")
    write_run(tmp_path, record)
    cell = load_run(tmp_path).record.cell
    assert (cell.scenario, cell.settings) == ("emulated/gone.toml", {"scenario.num_envs": "2"})
