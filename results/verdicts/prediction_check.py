"""How far predictions were off when last compared with runs on emulated GPUs (`nox -s validate -- --keep`)."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path

FILE = Path(__file__).parent / "prediction_check.csv"
COLUMNS = ("system", "workload", "gpus", "measured_steps_per_s", "predicted_steps_per_s")


def read_check() -> list[dict[str, str]]:
    """A row for each cell that was compared with a run, with the fields `COLUMNS`."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def largest_error(systems: Collection[str]) -> float | None:
    """The largest relative error of steps/s among the compared cells of some systems; None if there are none."""
    errors = [
        abs(float(row["predicted_steps_per_s"]) / float(row["measured_steps_per_s"]) - 1)
        for row in read_check()
        if row["system"] in systems
    ]
    return max(errors, default=None)
