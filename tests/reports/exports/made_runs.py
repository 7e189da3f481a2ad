"""Runs with a course, for the tests of what trackers get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rlbench.results.records.store import StoredRun, load_run
from tests.results.made_records import make_record, write_run_folder

BEGAN_S = 1767225600.0
"""2026-01-01T00:00:00+00:00, when made records begin."""
STARTING_S = 2.0


def make_run(folder: Path, *, statistics: dict[str, list[float]] | None = None, **fields: Any) -> StoredRun:
    """A run of two ranks that learned 10 samples each in each of 3 iterations of a second; fields of its record."""
    path = write_run_folder(folder, make_record(**{"gpus": 2, "starting_s": STARTING_S} | fields))
    rows = [(rank, iteration) for rank in (0, 1) for iteration in range(3)]
    series = pd.DataFrame(rows, columns=["rank", "iteration"]).astype("int32")
    series = series.assign(begin_s=series["iteration"] + 0.0, end_s=series["iteration"] + 1.0, learned=10, lag_sum=5)
    series["span/simulate"], series["span/wait:straggler"] = 0.75, [0.0, 0.0, 0.0, 0.25, 0.25, 0.25]
    series = series.assign(
        **statistics or {"return": [float("nan"), 1.0, 2.0] * 2, "policy_loss": [0.5, 0.25, 0.0] * 2}
    )
    series.to_parquet(path / "series.parquet")
    telemetry = pd.DataFrame({"t": [-1.0, 1.5, 3.5], "memory_bytes": [10, 20, 30], "cpu_percent": [None, 100.0, 50.0]})
    telemetry.to_parquet(path / "telemetry.parquet")
    return load_run(path)
