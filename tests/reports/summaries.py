"""Summaries of made-up cells, for tests of what is printed."""

from __future__ import annotations

from typing import Any

from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.document import CellSummary, Estimate, Finding, Summary
from tests.results.made_records import make_record

NOTHING: dict[str, Any] = {
    "reference": None,
    "answers": [],
    "findings": [],
    "fairness": [],
    "comparisons": [],
    "across_tasks": [],
    "published": [],
}
"""The other fields of a summary of no runs."""


def between(value: float, low: float, high: float, units: Any = "iterations") -> Estimate:
    """A figure with an interval."""
    return Estimate(value=value, low=low, high=high, units=units, num_units=5)


def make_summary(*cells: CellSummary, runs: list[RunRecord] | None = None, **fields: Any) -> Summary:
    """A summary of cells, each with an id of its own and a record for each of its runs; `fields` override."""
    numbered = [cell.model_copy(update={"id": f"cell-{number}"}) for number, cell in enumerate(cells)]
    if runs is None:
        runs = [
            make_record(cell.system, cell.gpus, id=name, sweep=cell.sweep, cell={"seed": seed})
            for cell in numbered
            for seed, name in enumerate(cell.runs)
        ]
    return Summary(cells=numbered, runs=runs, **NOTHING | fields)


def warning(text: str, *runs: str) -> Finding:
    """A warning that some runs have."""
    return Finding(severity="warning", text=text, runs=list(runs))
