"""How far predictions from shipped profiles were from published figures (`nox -s validate -- --published --keep`)."""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "published_check.csv"
COLUMNS = ("table", "profiles", "figures", "count", "mean_error")
FITTED, HELD_OUT = "that profiles were fitted to", "held out"
"""In `figures`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedErrors:
    """How far predictions were from some figures of a table."""

    mean: float
    """The mean absolute relative error."""
    count: int
    """The number of figures."""
    scenarios: frozenset[str]
    """`emulated/NAME`, the profiles that they were predicted from."""


def published_errors(scenarios: Collection[str]) -> dict[str, dict[str, PublishedErrors]]:
    """By table, then by kind of figures: the errors of the predictions.

    Args:
        scenarios: `emulated/NAME`; only tables that have one of these are returned, with both kinds of figures.
    """
    found: dict[str, dict[str, PublishedErrors]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["table"], {})[row["figures"]] = PublishedErrors(
                mean=float(row["mean_error"]), count=int(row["count"]), scenarios=frozenset(row["profiles"].split())
            )
    return {
        table: errors
        for table, errors in found.items()
        if any(not each.scenarios.isdisjoint(scenarios) for each in errors.values())
    }
