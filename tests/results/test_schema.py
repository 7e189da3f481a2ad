from __future__ import annotations

import math
import subprocess
import sys

import pytest
from pydantic import ValidationError

from results.schema import Counters, Reading, RunRecord
from tests.results.records import make_record


def test_round_trip() -> None:
    """A record that is written as JSON and read again is the same record."""
    record = make_record(figures={"steps_per_s_interval": (90.0, 110.0)}, warnings=["load 3.1 before the run"])
    assert RunRecord.model_validate_json(record.model_dump_json()) == record


def test_conservation() -> None:
    """Conservation holds to the sample: one env step too many or too few breaks it."""
    assert Counters(env_steps=10, learned=6, discarded=3, in_flight=1).conserved
    assert not Counters(env_steps=11, learned=6, discarded=3, in_flight=1).conserved
    assert not Counters(env_steps=9, learned=6, discarded=3, in_flight=1).conserved


def test_reused_samples_are_not_collected_samples() -> None:
    """Further uses of a sample do not enter the conservation sum."""
    assert Counters(env_steps=10, learned=10, reused=30).conserved


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_finite_is_not_a_measurement(value: float) -> None:
    """A figure that came out as NaN or infinity is recorded as not measured, so that the JSON stays valid."""
    assert Reading(value=value, source="NVML").value is None
    assert make_record(steps_per_s=value).figures.steps_per_s is None


def test_unknown_field_is_refused() -> None:
    """A misspelt figure does not vanish silently."""
    with pytest.raises(ValidationError, match="steps_per_sec"):
        make_record(figures={"steps_per_sec": 3.0})


def test_reason_is_one_line() -> None:
    """The reason of a failed run is one line, however many the exception had."""
    record = make_record(status="failed", reason="rank 3 died:\n  RuntimeError: no\n")
    assert record.reason == "rank 3 died: RuntimeError: no"


def test_reason_goes_with_status() -> None:
    """A run that did not finish says why, and a finished one has nothing to say."""
    with pytest.raises(ValidationError, match="reason"):
        make_record(status="timed-out")
    with pytest.raises(ValidationError, match="reason"):
        make_record(reason="but why")


def test_import_is_light() -> None:
    """Importing schema and store loads none of the heavy libraries, so that `rlbench --help` stays quick."""
    heavy = ["torch", "pandas", "pyarrow", "numpy"]
    program = f"import results.schema, results.store, sys; print([name for name in {heavy} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
