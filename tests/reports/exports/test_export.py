from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from rlbench.reports.exports.export import to_csv, to_json, write_parquet
from rlbench.results.records.schema import Lag, RunRecord
from tests.results.made_records import make_record


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


def test_parquet_has_the_columns_of_the_csv_with_types(tmp_path: Path) -> None:
    """The Parquet file has the CSV's columns and rows; numbers are numbers, flags flags, what is missing is null."""
    records = [
        make_record(figures={"lag": Lag(mean=1.5, max=4)}),
        make_record("sync", 8, steps_per_s=None, status="failed", reason="died", cell={"settings": {"preempt.p": 0.8}}),
    ]
    path = tmp_path / "runs.parquet"
    write_parquet(records, path)
    table, rows = parquet.read_table(path), read_csv(to_csv(records))
    assert table.column_names == list(rows[0])
    types = {name: table.schema.field(name).type for name in table.column_names}
    assert types["figures.steps_per_s"] == types["cell.settings.preempt.p"] == pa.float64()
    assert types["cell.gpus"] == types["counters.learned"] == pa.int64()
    assert types["figures.emulated"] == pa.bool_()
    assert types["cell.system"] == types["reason"] == pa.string()
    for column in ("figures.steps_per_s", "figures.lag.mean", "cell.settings.preempt.p", "reason", "cell.gpus"):
        values = table.column(column).to_pylist()
        assert ["" if value is None else str(value) for value in values] == [row[column] for row in rows]


def test_parquet_of_values_of_several_types(tmp_path: Path) -> None:
    """Whole numbers and others are floats; a number beside a word is a text, and so is one too large for 64 bits."""
    settings = [{"mixed": 1, "word": 1, "large": 2**70}, {"mixed": 0.5, "word": "none", "large": 1}]
    path = tmp_path / "runs.parquet"
    write_parquet([make_record(cell={"settings": each}) for each in settings], path)
    table = parquet.read_table(path)
    assert table.column("cell.settings.mixed").to_pylist() == [1.0, 0.5]
    assert table.column("cell.settings.word").to_pylist() == ["1", "none"]
    assert table.column("cell.settings.large").to_pylist() == [str(2**70), "1"]


def test_parquet_of_nothing_can_be_read(tmp_path: Path) -> None:
    """No runs are a table without rows."""
    write_parquet([], tmp_path / "runs.parquet")
    assert parquet.read_table(tmp_path / "runs.parquet").num_rows == 0


def test_parquet_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder in the way is one line that names it."""
    with pytest.raises(ValueError, match=r"cannot be written \(.+\); name another file") as caught:
        write_parquet([make_record()], tmp_path)
    assert "\n" not in str(caught.value)
