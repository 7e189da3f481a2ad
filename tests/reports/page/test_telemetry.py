from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.reports.page.charts.chart import Chart
from rlbench.reports.page.telemetry import MOST_POINTS, charts
from rlbench.results.records.schema import Reading
from rlbench.results.records.store import write_run
from rlbench.results.summary.document import Summary
from tests.reports.page.pages import summary_of
from tests.results.made_records import make_record
from tests.results.summaries import make_cell

Told = dict[str, Any]
"""Columns of telemetry."""
ITERATIONS = [(0, 0.0, 10.0, 100), (0, 10.0, 15.0, 100), (1, 0.0, 10.0, 300), (1, 10.0, 15.0, 100)]
"""Rank, begin, end and samples learned: 40 steps/s in the first 10 s, 40 in the next 5."""
SAMPLES: Told = {
    "t": [1.0, 2.0, 3.0],
    "cpu_percent": [100.0, 150.0, 200.0],
    "memory_bytes": [2.0**30, 2.0**31, 2.0**31],
}
FIGURES = {"cpu_percent": Reading(value=150.0, source="read")}


def write_folder(
    root: Path,
    name: str,
    told: Told | None = None,
    *,
    iterations: Sequence[tuple[int, float, float, int]] = ITERATIONS,
    gpu_busy_s: Sequence[float] | None = None,
) -> Path:
    """A run folder with a series and telemetry."""
    folder = root / name
    folder.mkdir(parents=True)
    write_run(folder, make_record("ver", 2, id=name))
    series = pd.DataFrame(iterations, columns=["rank", "begin_s", "end_s", "learned"])
    if gpu_busy_s is not None:
        series["gpu_busy_s"] = gpu_busy_s
    series.to_parquet(folder / "series.parquet")
    pd.DataFrame(SAMPLES if told is None else told).to_parquet(folder / "telemetry.parquet")
    return folder


def summary_with(*runs: tuple[str, int], gpus: int = 2) -> Summary:
    """A summary of one cell with these runs: id and seed."""
    records = [make_record("ver", gpus, id=name, cell={"seed": seed}, figures=FIGURES) for name, seed in runs]
    return summary_of([make_cell("ver", gpus, runs=[name for name, _ in runs])], records)


def only(root: Path, told: Told | None = None, **fields: Any) -> Chart:
    """The chart of one run."""
    (chart,) = charts(summary_with(("a", 0)), {"a": write_folder(root, "a", told, **fields)})
    return chart


def lines(chart: Chart) -> dict[str, tuple[list[float], list[float]]]:
    """Times and values of the first line of each panel, by its title."""
    first = {panel.title: panel.figure["data"][0] for panel in chart.panels}
    return {title: (trace["x"], trace["y"]) for title, trace in first.items()}


def test_what_a_run_used_over_time(tmp_path: Path) -> None:
    """Each quantity that the folder has is a panel, with its unit; the rate is the sum over ranks."""
    chart = only(tmp_path)
    assert lines(chart) == {
        "Steps/s": ([0, 10, 10, 15], [40, 40, 40, 40]),
        "CPU (100 % is one core)": ([1, 2, 3], [100, 150, 200]),
        "Memory (GiB)": ([1, 2, 3], [1, 2, 2]),
    }
    assert {tuple(panel.figure["layout"]["xaxis"]["range"]) for panel in chart.panels} == {(0.0, 15.0)}
    assert len({panel.id for panel in chart.panels}) == 3


def test_gpus(tmp_path: Path) -> None:
    """Utilisation is the mean of all GPUs, of their SMs where all tell it, and power is the sum."""
    told: Told = {**SAMPLES, "gpu0_busy": [0.5] * 3, "gpu1_busy": [1.0] * 3}
    power: Told = {"gpu0_power_w": [100.0, 200.0, None], "gpu1_power_w": [50.0] * 3}
    found = lines(only(tmp_path / "busy", {**told, **power}))
    assert found["GPU utilisation (%)"] == ([1.0, 2.0, 3.0], [0.75] * 3)
    assert found["GPU power (W)"] == ([1.0, 2.0], [150.0, 250.0])
    told |= {"gpu0_sm_busy": [0.25] * 3}
    assert lines(only(tmp_path / "one", told))["GPU utilisation (%)"][1] == [0.75] * 3
    told |= {"gpu1_sm_busy": [0.75] * 3}
    assert lines(only(tmp_path / "all", told))["GPU utilisation (%)"][1] == [0.5] * 3


def test_emulated_gpus(tmp_path: Path) -> None:
    """Of emulated GPUs it is the share of the time for which they were reserved."""
    found = lines(only(tmp_path, gpu_busy_s=[5.0, 5.0, 10.0, 0.0]))
    assert found["GPU utilisation (%)"] == ([0, 10, 10, 15], [0.75, 0.75, 0.5, 0.5])


def test_ranks_that_go_by_themselves(tmp_path: Path) -> None:
    """What another rank learns in an iteration is spread evenly over it."""
    iterations = [(0, 0.0, 10.0, 100), (0, 10.0, 20.0, 100), (1, 0.0, 20.0, 400)]
    assert lines(only(tmp_path, iterations=iterations))["Steps/s"] == ([0, 10, 10, 20], [30, 30, 30, 30])


def test_long_runs_have_few_points(tmp_path: Path) -> None:
    """Points are means of stretches, so that a day fits into a page; the mean stays."""
    num = 5000
    told = {"t": [float(k) for k in range(num)], "cpu_percent": [float(k % 2) for k in range(num)]}
    iterations = [(0, float(k), float(k + 1), 7) for k in range(num)]
    found = lines(only(tmp_path, told, iterations=iterations))
    for times, values in found.values():
        assert len(times) == len(values) <= MOST_POINTS
    assert found["CPU (100 % is one core)"][1] == pytest.approx([0.5] * MOST_POINTS, abs=0.1)
    assert set(found["Steps/s"][1]) == {7}


def test_each_run_has_a_line(tmp_path: Path) -> None:
    """Seeds of a cell have a line each, those of further ones thinner; of many runs the first ones are drawn."""
    ids = [(f"run-{seed}", seed) for seed in range(14)]
    folders = {name: write_folder(tmp_path, name) for name, _ in ids}
    (chart,) = charts(summary_with(*ids[:2]), folders)
    first, second = chart.panels[0].figure["data"]
    assert (first["name"], second["name"]) == ("ver, seed 0", "ver, seed 1")
    assert first["line"]["width"] > second["line"]["width"]
    (chart,) = charts(summary_with(*ids), folders)
    assert len(chart.panels[0].figure["data"]) == len(chart.table.rows) == 12
    assert "2 more runs are not drawn." in chart.notes


def test_the_most_gpus_that_have_telemetry(tmp_path: Path) -> None:
    """Runs on more GPUs that were predicted, or whose folders are elsewhere, are passed over."""
    cells = [make_cell("ver", 2, runs=["a"]), make_cell("ver", 64, runs=["b"])]
    summary = summary_of(cells, [make_record("ver", 2, id="a"), make_record("ver", 64, id="b")])
    (chart,) = charts(summary, {"a": write_folder(tmp_path, "a")})
    assert chart.title == "Over time, on 2 GPUs (emulated)"
    assert charts(summary, {}) == []
    assert charts(summary_of([]), {}) == []


def test_the_table_has_the_figures_of_the_record(tmp_path: Path) -> None:
    """Each number stands in the summary, at the path that the table names."""
    ((name, rate, cpu, memory, *_),) = only(tmp_path).table.rows
    assert name[0].text == "ver"
    assert (rate[0].path, rate[0].value) == ("runs.0.figures.steps_per_s", "100.0")
    assert (cpu[0].path, cpu[0].text) == ("runs.0.figures.cpu_percent.value", "150%")
    assert (memory[0].text, memory[0].value) == ("n/a", "null")


@pytest.mark.parametrize("file", ["telemetry.parquet", "series.parquet"])
def test_damaged_files_are_named(tmp_path: Path, file: str) -> None:
    """A file that cannot be read costs its run the line; the other runs are drawn."""
    folders = {name: write_folder(tmp_path, name) for name in ("a", "b")}
    (folders["a"] / file).write_bytes(b"PAR1 nonsense")
    (chart,) = charts(summary_with(("a", 0), ("b", 1)), folders)
    assert len(chart.panels[0].figure["data"]) == 1
    assert any(note.startswith(f"Not drawn: ver, seed 0: {file} cannot be read") for note in chart.notes)


def test_strange_numbers_are_left_out(tmp_path: Path) -> None:
    """Infinite and huge numbers, and none at all, are no points."""
    told = {"t": [1.0, 2.0, 3.0, 4.0], "cpu_percent": [float("inf"), 1e300, None, 50.0], "memory_bytes": [None] * 4}
    frame = pd.DataFrame(told).astype("float64")
    chart = only(tmp_path, {str(name): frame[name].tolist() for name in frame})
    assert lines(chart)["CPU (100 % is one core)"] == ([4], [50])
    assert "Memory (GiB)" not in lines(chart)
