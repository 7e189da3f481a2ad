"""Samples in flight at moments of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlbench.results.records.in_flight import read_in_flight
from rlbench.results.records.parts import SERIES_FILE

ROWS = {
    "rank": [0, 0, 1, 1, 1],
    "end_s": [1.0, 2.0, 1.0, 3.0, 2.0],
    "env_steps": [100, 60, 10, 10, 10],
    "learned": [50, 100, 10, 0, 10],
    "discarded": [10, 0, 0, 0, 0],
}
"""Rank 0 has 40 samples in flight, then none; rank 1 none until its last iteration, whose row is not the last."""


def test_samples_in_flight_of_all_ranks(tmp_path: Path) -> None:
    """Collected, neither learned nor discarded; between the ends of iterations a line."""
    pd.DataFrame(ROWS).to_parquet(tmp_path / SERIES_FILE)
    in_flight = read_in_flight(tmp_path, 2, np.array([1.0, 1.5, 2.0, 2.5, 3.0, 9.0]))
    assert in_flight is not None
    assert in_flight.tolist() == [40, 20, 0, 5, 10, 10]


def test_runs_that_do_not_tell(tmp_path: Path) -> None:
    """Without a series, or with one that lacks a rank, or what was collected or discarded."""
    moments = np.array([1.0])
    assert read_in_flight(tmp_path, 2, moments) is None
    pd.DataFrame(ROWS).to_parquet(tmp_path / SERIES_FILE)
    assert read_in_flight(tmp_path, 3, moments) is None
    for missing in ("env_steps", "discarded"):
        pd.DataFrame(ROWS).drop(columns=missing).to_parquet(tmp_path / SERIES_FILE)
        assert read_in_flight(tmp_path, 2, moments) is None


def test_a_damaged_series_is_named(tmp_path: Path) -> None:
    """As the other readers of a series do."""
    pd.DataFrame(ROWS).assign(learned=np.nan).to_parquet(tmp_path / SERIES_FILE)
    with pytest.raises(ValueError, match=SERIES_FILE):
        read_in_flight(tmp_path, 2, np.array([1.0]))
