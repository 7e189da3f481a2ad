"""How far predictions from shipped profiles were from published figures (`nox -s validate -- --published --keep`)."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path

FILE = Path(__file__).parent / "published_check.csv"
COLUMNS = ("table", "profiles", "figures", "count", "mean_error")
FITTED, HELD_OUT = "that profiles were fitted to", "held out"
"""In `figures`."""


def published_errors(scenarios: Collection[str]) -> dict[str, dict[str, tuple[float, int]]]:
    """By table, then by kind of figures: the mean absolute relative error of the predictions, and of how many.

    Args:
        scenarios: `emulated/NAME`; only tables that have one of these are returned.
    """
    found: dict[str, dict[str, tuple[float, int]]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not set(row["profiles"].split()).isdisjoint(scenarios):
                found.setdefault(row["table"], {})[row["figures"]] = float(row["mean_error"]), int(row["count"])
    return found
