from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlbench.results.records.schema import Figures, RunRecord
from rlbench.results.records.store import read_runs
from rlbench.results.summary.cells import make_cells
from rlbench.results.summary.scaled import scale
from tests.results.made_records import make_record, write_run_folder

STEADY_RATES = [50.0] * 5 + [95.0, 100.0, 105.0, 99.0, 101.0]


def scaled(folder: Path) -> dict[str, Figures]:
    """The figures of all runs in a folder, by the runs' ids."""
    return {run.record.id: run.record.figures for run in scale(read_runs(folder))}


def write_all(folder: Path, *records: RunRecord, rates: list[float] | None = None) -> None:
    """Writes a run folder for each record."""
    for record in records:
        write_run_folder(folder, record, rates or [])


def test_scaling_factor_and_efficiency(tmp_path: Path) -> None:
    """8 GPUs at 600 steps/s against 1 at 100: scaling factor 6, efficiency 75 %; the base itself is 1 and 100 %."""
    write_all(tmp_path, make_record(gpus=1), make_record(gpus=8, steps_per_s=600), rates=STEADY_RATES)
    figures = scaled(tmp_path)
    assert figures["ddppo-8"].scaling_factor == pytest.approx(6)
    assert figures["ddppo-8"].efficiency == pytest.approx(0.75)
    assert (figures["ddppo-1"].scaling_factor, figures["ddppo-1"].efficiency) == (1, 1)
    assert figures["ddppo-1"].scaling_factor_interval is None


def test_base_is_the_fewest_gpus_that_finished(tmp_path: Path) -> None:
    """When the run on 1 GPU failed, 2 GPUs are the base, and the record says so."""
    failed = make_record(gpus=1, steps_per_s=None, status="failed", reason="died")
    write_all(tmp_path, failed, make_record(gpus=2, steps_per_s=200), make_record(gpus=8, steps_per_s=400))
    figures = scaled(tmp_path)
    assert figures["ddppo-1"].scaling_factor is None
    assert figures["ddppo-8"].scaling_factor == pytest.approx(2)
    assert figures["ddppo-8"].efficiency == pytest.approx(0.5)
    assert figures["ddppo-8"].scaling_base_gpus == 2


@pytest.mark.parametrize(
    "other",
    [
        {"cell": {"seed": 1}},
        {"cell": {"device": "cpu"}},
        {"cell": {"scenario": "pointnav"}},
        {"cell": {"workload": "homogeneous"}},
        {"cell": {"settings": {"preempt.p": 1.0}}},
        {"cell": {"system": "sync"}},
        {"sweep": "sweep-2"},
    ],
)
def test_only_alike_runs_are_scaled_against_each_other(tmp_path: Path, other: dict[str, Any]) -> None:
    """A run that differs in more than its GPUs is no base for another."""
    write_all(tmp_path, make_record(gpus=1), make_record(gpus=4, steps_per_s=300, **other))
    figures = scaled(tmp_path)["ddppo-4"]
    assert (figures.scaling_factor, figures.scaling_base_gpus) == (1, 4)


def test_interval_comes_from_the_window_and_is_reproducible(tmp_path: Path) -> None:
    """The interval holds the factor, ignores the warm-up (half the rate), and is the same on every reading."""
    write_run_folder(tmp_path, make_record(gpus=1), STEADY_RATES)
    write_run_folder(tmp_path, make_record(gpus=8, steps_per_s=600), [6 * rate for rate in STEADY_RATES])
    interval = scaled(tmp_path)["ddppo-8"].scaling_factor_interval
    assert interval is not None
    assert 5.2 < interval[0] < 6 < interval[1] < 6.9
    assert scaled(tmp_path)["ddppo-8"].scaling_factor_interval == interval


def test_damaged_series_is_named(tmp_path: Path) -> None:
    """A series that is no Parquet file is one line that names it."""
    write_all(tmp_path, make_record(gpus=1), make_record(gpus=8), rates=STEADY_RATES)
    (tmp_path / "ddppo-8" / "series.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match=r"ddppo-8/series\.parquet: cannot be read") as caught:
        scaled(tmp_path)
    assert "\n" not in str(caught.value)


def test_order_is_kept(tmp_path: Path) -> None:
    """Scaling neither drops nor reorders runs."""
    write_all(tmp_path, *(make_record(gpus=gpus) for gpus in (8, 1, 4)))
    runs = read_runs(tmp_path)
    assert [run.record.id for run in scale(runs[::-1])] == [run.record.id for run in runs[::-1]]


def test_records_and_cells_say_the_same(tmp_path: Path) -> None:
    """With one seed the interval of a cell's scaling factor is, to the bit, that of its run's record."""
    write_all(tmp_path, make_record(gpus=1), make_record(gpus=8, steps_per_s=600), rates=STEADY_RATES)
    runs = scale(read_runs(tmp_path))
    of_records = {run.record.id: run.record.figures.scaling_factor_interval for run in runs}
    of_cells = {cell.summary.runs[0]: cell.summary.scaling for cell in make_cells(runs)}
    scaling = of_cells["ddppo-8"]
    assert scaling is not None
    assert of_records["ddppo-8"] == (scaling.low, scaling.high)
