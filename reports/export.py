"""Runs as JSON and CSV, for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from results.schema import RunRecord


def to_json(records: Sequence[RunRecord]) -> str:
    """A JSON list of the records, as `run.json` has them, with the figures that compare runs."""
    return json.dumps([record.model_dump(mode="json") for record in records], indent=1, allow_nan=False) + "\n"


def to_csv(records: Sequence[RunRecord]) -> str:
    """A header and a line per run; columns are dotted paths (`figures.window.begin_s`), lists JSON, None is empty."""
    rows = [dict(_flat(record.model_dump(mode="json"))) for record in records]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    groups = {column[:end] for column in columns for end, letter in enumerate(column) if letter == "."}
    columns = [column for column in columns if column not in groups]  # `figures.lag` where another run has its mean
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    if columns:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", json.dumps(value)
        else:
            yield f"{prefix}{name}", value
