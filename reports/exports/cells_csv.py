"""Cells over seeds as CSV, for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlbench.reports.exports.export import csv_of, flat
from rlbench.results.summary.document import CellSummary

LEFT_OUT = {"learning": {"curve"}}
"""Fields that the CSV leaves out: the points of learning curves are in the JSON only."""


def to_csv(cells: Sequence[CellSummary]) -> str:
    """A header and a line per cell; columns are dotted paths (`steps_per_s.low`), lists are JSON, None is empty."""
    return csv_of([flat(_by_cost(cell.model_dump(mode="json", exclude=LEFT_OUT))) for cell in cells])


def _by_cost(cell: dict[str, Any]) -> dict[str, Any]:
    """Replaces the list of costs of reaching the threshold by a dictionary, so that each cost gets its own columns."""
    if cell["learning"] is not None:
        cell["learning"]["to_threshold"] = {each["cost"]: each for each in cell["learning"]["to_threshold"]}
    return cell
