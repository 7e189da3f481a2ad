"""Histories: rows of revisions, and where a series changes."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rich.console import Console

from rlbench.reports.terminal.history import print_history
from rlbench.results.records.store import StoredRun
from rlbench.results.summary.document import HistoryRow
from rlbench.results.verdicts.history import (
    LEVEL,
    change_points,
    machine_class,
    merged,
    read,
    rows_of,
    series_of,
    write,
)
from tests.results.summaries import MACHINE, make_run, stored

Floats = npt.NDArray[np.float64]


def run_of(commit: str | None, rate: float, *, day: int = 1, seed: int = 0, **fields: Any) -> StoredRun:
    """A run of a revision."""
    started = f"2026-01-{day:02d}T00:00:00+00:00"
    named: dict[str, Any] = {
        "id": f"run-{commit}-{day}-{seed}",
        "sweep": f"sweep-{commit}-{day}",
        "started_at": started,
    }
    return stored(make_run("ver", 8, seed=seed, steps_per_s=rate, commit=commit, **named | fields))


def make_row(commit: str, rate: float, day: int, **fields: Any) -> HistoryRow:
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
        ("[" * 100_000, "line 2: is no row of a history"),
        ('{"history_version": 3}', "line 2: has version 3, this rlbench reads up to 2"),
    ],
)
def test_damaged_histories_are_named(tmp_path: Path, line: str, said: str) -> None:
    """With the file and the line."""
    path = tmp_path / "history.jsonl"
    write(path, [make_row("aaaa", 100, 1)])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=f"history.jsonl, {said}"):
        read(path)


@pytest.mark.parametrize("rate", [0.0, -5.0, float("nan"), float("inf")])
def test_a_rate_is_a_positive_number(tmp_path: Path, rate: float) -> None:
    """Nothing else has a logarithm."""
    path = tmp_path / "history.jsonl"
    document = json.loads(make_row("aaaa", 100, 1).model_dump_json()) | {"steps_per_s": rate}
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="is no row of a history"):
        read(path)


def test_revisions_stand_in_the_order_in_which_they_were_first_measured() -> None:
    """In UTC, whatever the zone of the machine; measured again, a revision stays where it was."""
    east = run_of("aaaa", 100.0, started_at="2026-01-01T01:00:00+02:00")
    west = run_of("bbbb", 100.0, started_at="2026-01-01T00:30:00+00:00")
    rows = rows_of([west, east])
    assert [row.commit for row in merged([], rows)] == ["aaaa", "bbbb"]
    again = merged(rows, [make_row("aaaa", 120, 9)])
    (series,) = series_of(again)
    assert [(row.commit, row.steps_per_s) for row in series.rows] == [("bbbb", 100), ("aaaa", 120)]
    other = make_row("aaaa", 100, 0 + 1, system="ddppo", measured_at="2025-12-31T00:00:00+00:00")
    assert [row.commit for row in series_of([*again, other])[0].rows] == ["aaaa"]
    assert [row.commit for row in series_of([*again, other])[1].rows] == ["aaaa", "bbbb"]


def test_runs_of_another_length_are_another_series() -> None:
    """A shorter run has another warm-up: it is no change of the code."""
    configuration = {"limits": {"kind": "Limits", "seconds": 30, "until": None}}
    (one,) = rows_of([run_of("aaaa", 100.0)])
    (other,) = rows_of([run_of("bbbb", 90.0, day=2, configuration=configuration)])
    assert other.length == "protocol=ddppo seconds=30"
    assert len(series_of([one, other])) == 2


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


def outlier(generator: np.random.Generator) -> Floats:
    """40 revisions with a noise of 1 %, and one bad day."""
    values = 0.01 * generator.standard_normal(40)
    values[generator.integers(40)] -= 0.3
    return values


def mixed(generator: np.random.Generator) -> Floats:
    """40 revisions, measured on one or the other of two machines, of which one is a tenth slower."""
    return 0.01 * generator.standard_normal(40) - 0.1 * (generator.random(40) < 0.5)


@pytest.mark.parametrize("make", [outlier, mixed])
def test_what_is_no_change(make: Callable[[np.random.Generator], Floats]) -> None:
    """Of 100 histories hardly one has a change point."""
    generator = np.random.default_rng(0)
    assert sum(bool(change_points(make(generator), generator)) for _ in range(100)) <= 3


def test_a_small_step_is_found() -> None:
    """2 % with a noise of 1 %, in the middle of 40 revisions: within two revisions of where it is."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(100):
        values = 0.01 * generator.standard_normal(40)
        values[20:] -= 0.02
        found.append(change_points(values, generator))
    assert sum(len(places) == 1 and abs(places[0] - 20) <= 2 for places in found) >= 85


def test_a_drift_is_some_steps_that_make_up_its_loss() -> None:
    """6 % over 40 revisions, a little with each: it has no first commit, but is told, and its size is right."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        rates = 100 * np.exp(0.01 * generator.standard_normal(40) - np.linspace(0, 0.06, 40))
        rows = [
            make_row(f"{number:040x}", float(rate), 1).model_copy(update={"measured_at": f"2026-01-{number:02d}"})
            for number, rate in enumerate(rates)
        ]
        (series,) = series_of(rows)
        lost = math.prod(change.ratio for change in series.changes)
        assert 0.93 < lost < 0.98


def printed(rows: Sequence[HistoryRow]) -> str:
    """A history in a wide terminal."""
    text = io.StringIO()
    print_history(series_of(rows), Console(file=text, width=300))
    return text.getvalue()


def test_the_search_for_the_commit_is_proposed() -> None:
    """Between the revisions around the newest loss, with the cell's options as a shell takes them."""
    rates = [100.0] * 12 + [90.0] * 12
    rows = [
        make_row(f"{number:02d}{'a' * 38}", rate + 0.1 * (number % 3), 1 + number).model_copy(
            update={"system": "ver:learn.epochs=1 x"}
        )
        for number, rate in enumerate(rates)
    ]
    text = printed(rows)
    (line,) = [line for line in text.splitlines() if "--bisect" in line]
    assert "--baseline 11aaaaaaaaaa --candidate 12aaaaaaaaaa --systems 'ver:learn.epochs=1 x' --gpus 8" in line
    assert "--bisect" not in printed(rows[12:])
