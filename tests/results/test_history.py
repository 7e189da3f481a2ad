"""Histories: rows of revisions, and where a series changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.history import (
    LEVEL,
    change_points,
    machine_class,
    merged,
    read,
    rows_of,
    series_of,
    write,
)
from results.store import StoredRun
from results.summary import Revision
from tests.results.summaries import MACHINE, make_run, stored


def run_of(commit: str | None, rate: float, *, day: int = 1, seed: int = 0, **fields: Any) -> StoredRun:
    """A run of a revision."""
    started = f"2026-01-{day:02d}T00:00:00+00:00"
    named: dict[str, Any] = {"id": f"run-{day}-{seed}", "sweep": f"sweep-{day}", "started_at": started}
    return stored(make_run("ver", 8, seed=seed, steps_per_s=rate, commit=commit, **named, **fields))


def make_row(commit: str, rate: float, day: int, **fields: Any) -> Revision:
    """A row of a cell."""
    (row,) = rows_of([run_of(commit, rate, day=day)])
    return row.model_copy(update=fields)


def test_a_row_for_each_cell_of_a_revision() -> None:
    """Seeds are one row, with their mean and interval; runs of a changed work tree are none."""
    runs = [run_of("aaaa", rate, seed=seed) for seed, rate in enumerate((90.0, 100.0, 110.0))]
    (row,) = rows_of([*runs, run_of("bbbb-dirty", 500.0, day=2), run_of(None, 500.0, day=3)])
    assert (row.commit, row.steps_per_s, row.num_runs, row.gpus) == ("aaaa", 100, 3, 8)
    assert row.low is not None
    assert row.low < 90
    assert row.machine == "EPYC, 16 cores"


def test_machine_classes_are_never_mixed() -> None:
    """Other cores, another processor or other GPUs make another series; GPUs count where they are used."""
    record = make_run(machine=MACHINE)
    on_gpus = make_run(machine=MACHINE, cell={"device": "cuda"})
    fewer = make_run(machine={**MACHINE, "cpu_quota_cores": 4})
    assert machine_class(on_gpus) == "EPYC, 16 cores, 2 x V100"
    another = make_run(machine={**MACHINE, "cpu_model": "Xeon"})
    assert len({machine_class(each) for each in (record, on_gpus, fewer, another)}) == 4
    rows = [make_row("aaaa", 100, 1), make_row("bbbb", 50, 2, machine="another"), make_row("cccc", 100, 3)]
    assert [[row.commit for row in series.rows] for series in series_of(rows)] == [["aaaa", "cccc"], ["bbbb"]]


def test_the_newest_measurement_of_a_revision_counts() -> None:
    """Measured again, a revision has its new figure; rows are in the order of measuring."""
    old, new = make_row("aaaa", 100, 1), make_row("aaaa", 120, 5)
    other = make_row("bbbb", 90, 3)
    assert [(row.commit, row.steps_per_s) for row in merged([old, other], [new])] == [("bbbb", 90), ("aaaa", 120)]
    assert merged([new], [old]) == [new]


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    """And a file that is not there is an empty one."""
    path = tmp_path / "history.jsonl"
    assert read(path) == []
    rows = [make_row("aaaa", 100, 1), make_row("bbbb", 90, 2)]
    write(path, rows)
    assert read(path) == rows
    assert [each.name for each in tmp_path.iterdir()] == ["history.jsonl"]
    with pytest.raises(ValueError, match="cannot be written"):
        write(tmp_path / "nowhere" / "history.jsonl", rows)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: is no row of a history"),
        ("[]", "line 2: is no row of a history"),
        ('{"history_version": 1}', "line 2: is no row of a history"),
        ('{"history_version": 2}', "line 2: has version 2, this rlbench reads up to 1"),
    ],
)
def test_damaged_histories_are_named(tmp_path: Path, line: str, said: str) -> None:
    """With the file and the line."""
    path = tmp_path / "history.jsonl"
    write(path, [make_row("aaaa", 100, 1)])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=f"history.jsonl, {said}"):
        read(path)


def test_a_loss_is_found_where_it_is() -> None:
    """20 revisions with 2 % noise lose 10 % at the 12th, and win 20 % at the 17th."""
    generator = np.random.default_rng(0)
    levels = [100.0] * 12 + [90.0] * 5 + [108.0] * 6
    rows = [
        make_row(f"c{number:02d}", level * float(np.exp(0.02 * generator.standard_normal())), 1 + number)
        for number, level in enumerate(levels)
    ]
    (series,) = series_of(rows)
    assert [change.commit for change in series.changes] == ["c12", "c17"]
    assert [change.ratio for change in series.changes] == pytest.approx([0.9, 1.2], rel=0.03)
    assert series_of(rows) == [series]
    assert series.name.startswith("ver, ")


def test_few_or_equal_revisions_have_no_change() -> None:
    """Less than four, and figures that are all the same; the one that differs at the end may be a bad day."""
    generator = np.random.default_rng(0)
    assert change_points(np.array([1.0, 2.0, 3.0]), generator) == []
    assert change_points(np.ones(30), generator) == []
    assert change_points(np.array([1.0] * 10 + [2.0]), generator) == []
    assert change_points(np.array([1.0] * 10 + [2.0] * 10), generator) == [10]


def test_error_rate() -> None:
    """Of 400 series of noise alone about 1 % have a change point; of 100 with a clear step most have just that."""
    generator = np.random.default_rng(1)
    false = sum(bool(change_points(generator.standard_normal(20), generator)) for _ in range(400))
    assert false / 400 <= 2.5 * LEVEL
    steps = [np.concatenate([np.zeros(10), np.full(10, 3.0)]) + generator.standard_normal(20) for _ in range(100)]
    near = [len(found := change_points(step, generator)) == 1 and abs(found[0] - 10) <= 1 for step in steps]
    assert sum(near) >= 85
