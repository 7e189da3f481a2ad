from __future__ import annotations

import csv
import io
import json

from reports.export import to_csv, to_json
from results.schema import Lag, RunRecord
from tests.results.records import make_record


def read_csv(text: str) -> list[dict[str, str]]:
    """The rows of a CSV text, by column."""
    return list(csv.DictReader(io.StringIO(text)))


def test_json_is_a_list_of_records() -> None:
    """The JSON is a list in the order given, and each entry is the whole record again."""
    records = [make_record("sync"), make_record(steps_per_s=None, status="failed", reason="died")]
    document = json.loads(to_json(records))
    assert [RunRecord.model_validate(entry) for entry in document] == records
    assert document[0]["figures"]["steps_per_s"] == 100.0
    assert document[1]["status"] == "failed"
    assert json.loads(to_json([])) == []


def test_json_is_valid_whatever_the_configuration_holds() -> None:
    """An infinite setting does not make the JSON unreadable for stricter readers."""
    document = json.loads(to_json([make_record(configuration={"max_lag": float("inf")})]), parse_constant=str)
    assert document[0]["configuration"]["max_lag"] is None


def test_csv_columns_are_dotted_paths() -> None:
    """Nested figures are columns by their path; what was not measured is empty, lists are JSON."""
    (row,) = read_csv(to_csv([make_record(warnings=['a, "b"'], cell={"settings": {"preempt.p": 0.8}})]))
    assert row["cell.system"] == "ddppo"
    assert row["cell.settings.preempt.p"] == "0.8"
    assert row["figures.utilisation.value"] == "0.42"
    assert row["figures.window.begin_s"] == "5.0"
    assert row["figures.efficiency"] == ""
    assert json.loads(row["warnings"]) == ['a, "b"']


def test_csv_has_all_columns_of_all_runs() -> None:
    """A group that one run lacks (`figures.lag`) is not a column beside those that another has (`figures.lag.mean`)."""
    without, with_lag = make_record(), make_record(figures={"lag": Lag(mean=1.5, max=4)})
    rows = read_csv(to_csv([without, with_lag]))
    assert "figures.lag" not in rows[0]
    assert [row["figures.lag.mean"] for row in rows] == ["", "1.5"]


def test_csv_of_nothing() -> None:
    """No runs, no lines."""
    assert to_csv([]) == ""
