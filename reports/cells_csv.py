"""Cells over seeds as CSV, for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from results.summary import CellSummary

LEFT_OUT = {"learning": {"curve"}}
"""The points of a learning curve stand in the JSON."""


def to_csv(cells: Sequence[CellSummary]) -> str:
    """A header and a line per cell; columns are dotted paths (`steps_per_s.low`), lists are JSON, None is empty."""
    rows = [dict(_flat(cell.model_dump(mode="json", exclude=LEFT_OUT))) for cell in cells]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    groups = {column[:end] for column in columns for end, letter in enumerate(column) if letter == "."}
    columns = [column for column in columns if column not in groups]  # `learning` where another cell has its metric
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
        elif name == "to_threshold":
            for each in value:
                yield from _flat(each, f"{prefix}to_threshold.{each['cost']}.")
        else:
            yield f"{prefix}{name}", json.dumps(value) if isinstance(value, list) else value
