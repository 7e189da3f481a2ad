from __future__ import annotations

import math
import subprocess
import sys

import pytest
from pydantic import ValidationError

from rlbench.results.records.schema import Counters, Reading, RunRecord
from tests.results.made_records import make_learned_from, make_record


def test_round_trip() -> None:
    """A record that is written as JSON and read again is the same record."""
    record = make_record(figures={"steps_per_s_interval": (90.0, 110.0)}, warnings=["load 3.1 before the run"])
    assert RunRecord.model_validate_json(record.model_dump_json()) == record


def test_conservation() -> None:
    """Conservation holds to the sample: one env step too many or too few breaks it."""
    assert Counters(env_steps=10, learned=6, discarded=3, in_flight=1).conserved
    assert not Counters(env_steps=11, learned=6, discarded=3, in_flight=1).conserved
    assert not Counters(env_steps=9, learned=6, discarded=3, in_flight=1).conserved


def test_what_is_not_reported_is_not_counted_as_none() -> None:
    """A system that does not report a counter has None there; the others must sum to no more than was collected."""
    assert Counters(env_steps=10, learned=None, reused=None, discarded=None, in_flight=None).conserved
    assert Counters(env_steps=10, learned=9, discarded=None, in_flight=None).conserved
    assert not Counters(env_steps=10, learned=9, discarded=2, in_flight=None).conserved


def test_records_of_the_schema_before_are_read() -> None:
    """A record without what schema 5 added is of env steps learned, as all were."""
    document = make_record().model_dump(mode="json") | {"schema_version": 4}
    del document["figures"]["steps_counted"]
    assert RunRecord.model_validate(document).figures.steps_counted == "learned"


def test_a_record_that_does_not_say_what_was_learned_from_has_none() -> None:
    """Neither do records before schema 9, nor systems of others."""
    document = make_record(learned_from=make_learned_from()).model_dump(mode="json")
    assert RunRecord.model_validate(document).learned_from == make_learned_from()
    del document["learned_from"]
    assert RunRecord.model_validate(document | {"schema_version": 8}).learned_from is None


def test_a_record_says_which_sweep_file_its_options_came_from() -> None:
    """None where they were typed, and before schema 11; its hash is one."""
    file = {"name": "sweep.toml", "sha256": "0a" * 32}
    document = make_record(sweep_file=file).model_dump(mode="json")
    assert document["sweep_file"] == file
    del document["sweep_file"]
    assert RunRecord.model_validate(document | {"schema_version": 10}).sweep_file is None
    with pytest.raises(ValidationError, match="sha256"):
        make_record(sweep_file={"name": "sweep.toml", "sha256": "0a"})


def test_agent_steps_are_the_samples_where_there_are_any() -> None:
    """What is learned is then held against these, not against the env steps; records before schema 10 have none."""
    learned = {"learned": 20, "discarded": 7, "in_flight": 3}
    with_agents = Counters(env_steps=10, agent_steps=30, **learned)
    assert (with_agents.samples, with_agents.unit, with_agents.conserved) == (30, "agent steps", True)
    assert not Counters(env_steps=30, agent_steps=29, **learned).conserved
    document = make_record().model_dump(mode="json") | {"schema_version": 9}
    del document["counters"]["agent_steps"], document["figures"]["env_steps_per_s"]
    old = RunRecord.model_validate(document)
    assert (old.counters.unit, old.counters.samples, old.figures.env_steps_per_s) == ("env steps", 1000, None)


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
    loaded = f"[name for name in {heavy} if name in sys.modules]"
    program = f"import rlbench.results.records.schema, results.records.store, sys; print({loaded})"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
