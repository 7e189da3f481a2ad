"""Runs as JSON, CSV and Parquet, for other programs; in CSV and Parquet a row is a run and a column a dotted path."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlbench.results.reading.outputs import output
from rlbench.results.records.schema import RunRecord

INT64 = range(-(2**63), 2**63)


def to_json(records: Sequence[RunRecord]) -> str:
    """A JSON list of the records as in `run.json`, with the figures that compare runs."""
    return json.dumps([record.model_dump(mode="json") for record in records], indent=1, allow_nan=False) + "\n"


def to_csv(records: Sequence[RunRecord]) -> str:
    """A header and a line per run; columns are dotted paths (`figures.lag.mean`), lists are JSON, None is empty."""
    return csv_of(_rows(records))


def csv_of(documents: Sequence[Mapping[str, Any]]) -> str:
    """A header and a line per flat document."""
    text = io.StringIO()
    columns = _columns(documents)
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    if columns:
        writer.writeheader()
    writer.writerows(documents)
    return text.getvalue()


def write_parquet(records: Sequence[RunRecord], path: Path) -> None:
    """Writes the columns of `to_csv` with the types of their values.

    A column whose values have different types (a setting that is a number for one system and a word for another) holds
    texts, as in the CSV. Raises ValueError if the file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    rows = _rows(records)
    columns = _columns(rows)
    arrays = [pa.array(*_typed([row.get(column) for row in rows])) for column in columns]
    try:
        with output(path) as file:
            parquet.write_table(pa.table(arrays, names=columns), file, compression="zstd")
    except OSError as problem:
        raise ValueError(f"{path}: cannot be written ({problem.strerror or problem}); name another file") from None


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens a JSON document to values by dotted path; lists become JSON texts."""
    document: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            document |= flat(value, f"{prefix}{name}.")
        else:
            document[f"{prefix}{name}"] = json.dumps(value) if isinstance(value, list) else value
    return document


def _rows(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    return [flat(record.model_dump(mode="json")) for record in records]


def _columns(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """All columns of the flat documents, except groups: no `figures.lag` if some document has `figures.lag.mean`."""
    columns = list(dict.fromkeys(column for document in documents for column in document))
    groups = {column[:end] for column in columns for end, letter in enumerate(column) if letter == "."}
    return [column for column in columns if column not in groups]


def _typed(values: Sequence[Any]) -> tuple[list[Any], Any]:
    """The values of a column, and their Arrow type."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return list(values), pa.bool_()
    fits = all(value in INT64 for value in values if isinstance(value, int))
    if kinds == {int} and fits:
        return list(values), pa.int64()
    if kinds and kinds <= {int, float} and fits:
        return [None if value is None else float(value) for value in values], pa.float64()
    if not kinds:
        return list(values), pa.null()
    return [None if value is None else str(value) for value in values], pa.string()
