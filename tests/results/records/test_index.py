from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rlbench.results.records.index import FIELDS, Index
from rlbench.results.records.schema import SCHEMA_VERSION
from rlbench.results.records.store import RUN_FILE, read_runs, run_folders
from tests.results.made_records import make_record, write_run_folder
from tests.results.records import indexed
from tests.results.records.indexed import Loads, all_names, ids, opened, remembered

cache = pytest.fixture(autouse=True)(indexed.cache)
runs, loads = pytest.fixture(indexed.runs), pytest.fixture(indexed.loads)


def test_the_index_gives_what_the_folders_hold(runs: Path) -> None:
    """The first time and the second, runs come as `read_runs` reads them: paths, records, window parts, in order."""
    expected = read_runs(runs)
    assert any(run.parts for run in expected)
    for _ in range(2):
        with opened(runs) as made:
            assert made.runs() == expected
            assert made.count() == 6
            assert made.unreadable() == []


def test_what_was_read_once_is_not_read_again(runs: Path, loads: Loads) -> None:
    """The second listing opens no run folder, and a new run is the only one that the third reads."""
    assert loads.of(runs) == all_names(runs)
    assert loads.of(runs) == []
    write_run_folder(runs / "sweep-2", make_record(id="new"))
    assert loads.of(runs) == ["new"]
    assert loads.of(runs / "sweep-1") == []


def test_a_run_that_has_changed_is_read_again(runs: Path, loads: Loads) -> None:
    """A `run.json` with another time or size is read anew, and its old record is forgotten."""
    loads.of(runs)
    changed = runs / "sweep-2" / "late" / RUN_FILE
    changed.write_text(changed.read_text().replace('"duration_s": 12.5', '"duration_s": 99.5'))
    os.utime(changed, ns=(1, 1))
    assert loads.of(runs) == ["late"]
    with opened(runs) as made:
        assert [run.record.duration_s for run in made.runs()][-1] == 99.5


def test_a_folder_that_is_gone_is_not_listed_and_soon_forgotten(runs: Path, cache: Path) -> None:
    """A deleted run is in no listing, and leaves the file when something is written to it next."""
    with opened(runs):
        pass
    gone = runs / "sweep-2" / "late"
    for path in gone.iterdir():
        path.unlink()
    gone.rmdir()
    with opened(runs) as made:
        assert "late" not in ids(made.runs())
        assert made.count() == 5
    assert os.fsencode(gone) in remembered(cache)
    write_run_folder(runs / "sweep-2", make_record(id="new"))
    with opened(runs / "sweep-2"):
        pass
    assert os.fsencode(gone) not in remembered(cache)
    assert os.fsencode(runs / "sweep-1" / "0-ver-x1-seed-0") in remembered(cache)  # in no listing, but there


def test_a_run_folder_that_vanishes_while_it_is_listed(runs: Path) -> None:
    """A folder that was there when folders were listed, and is not when it is read, is named."""
    folders = run_folders(runs)
    (runs / "sweep-2" / "late" / RUN_FILE).unlink()
    with closing(Index(folders)) as made:
        assert made.count() == 5
        assert [each.path.name for each in made.unreadable()] == ["late"]


def break_run(folder: Path, how: str) -> Path:
    """Makes a run folder unreadable; returns the file that is."""
    run_file, series = folder / RUN_FILE, folder / "series.parquet"
    if how == "series":
        series.write_bytes(b"PAR1 cut off")
        return series
    newer = json.dumps(json.loads(run_file.read_text()) | {"schema_version": SCHEMA_VERSION + 1})
    run_file.write_text({"newer": newer, "damaged": "{", "foreign": '{"algorithm": "PPO"}'}[how])
    return run_file


@pytest.mark.parametrize("how", ["newer", "damaged", "foreign", "series"])
def test_unreadable_runs_are_named_and_looked_at_again(runs: Path, how: str, loads: Loads) -> None:
    """A newer schema, a damaged or foreign record, a cut-off series: named every time, and the others are listed."""
    broken = break_run(runs / "sweep-1" / "1-ver-x8-seed-0", how)
    for expected in (all_names(runs), ["1-ver-x8-seed-0"]):
        assert loads.of(runs) == expected
        with opened(runs) as made:
            (unreadable,) = made.unreadable()
            assert unreadable.path == runs / "sweep-1" / "1-ver-x8-seed-0"
            assert unreadable.reason.startswith(f"{broken}: ")
            assert "1-ver-x8-seed-0" not in ids(made.runs())
            assert made.count() == 5


def test_a_run_that_could_be_read_and_cannot_now(runs: Path) -> None:
    """A record that is damaged after it was remembered is named, and what was remembered of it is not shown."""
    with opened(runs) as made:
        assert made.count() == 6
    break_run(runs / "sweep-2" / "late", "damaged")
    with opened(runs) as made:
        assert "late" not in ids(made.runs())
        assert [each.path.name for each in made.unreadable()] == ["late"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([("system", "ver")], [0, 1, 2]),
        ([("system", "ddppo")], [3, 4, 5]),
        ([("system", "ddppo:preempt=never")], [5]),
        ([("scenario", "emulated/open-fridge")], [0, 1, 2, 3, 4, 5]),
        ([("scenario", "emulated/open-fridge:num_envs=4")], [5]),
        ([("gpus", "8")], [1, 2, 4]),
        ([("gpus", "8"), ("system", "ver")], [1, 2]),
        ([("gpus", "8"), ("gpus", "1")], []),
        ([("seed", "1")], [2]),
        ([("sweep", "sweep-2")], [5]),
        ([("status", "finished"), ("device", "emulated"), ("protocol", "ddppo")], [0, 1, 2, 3, 4, 5]),
        ([("status", "failed")], []),
        ([("workload", "heterogeneous' or 1=1 --")], []),
        ([("gpus", "eight")], []),
    ],
)
def test_runs_are_filtered(runs: Path, where: list[tuple[str, str]], expected: list[int]) -> None:
    """All conditions hold; systems and scenarios match by name and with their settings; a value is only a value."""
    everything = ids(read_runs(runs))
    with opened(runs) as made:
        assert ids(made.runs(where)) == [everything[number] for number in expected]
        assert made.count(where) == len(expected)


def test_unknown_field_is_refused(runs: Path) -> None:
    """A field that is not known is one line that lists those that are."""
    with opened(runs) as made:
        for read in (made.runs, made.count, made.bases):
            with pytest.raises(ValueError, match=r"--where colour=red: unknown; known: system, scenario, .*, sweep"):
                read([("colour", "red")])


def test_every_field_filters(runs: Path) -> None:
    """Whatever a field is compared with, no run has the value of another field by mistake."""
    with opened(runs) as made:
        assert {name: made.count([(name, "no such value")]) for name in FIELDS} == dict.fromkeys(FIELDS, 0)


def test_the_newest_come_oldest_first(runs: Path) -> None:
    """Of many runs the newest are taken, in the order in which they were started."""
    with opened(runs) as made:
        assert ids(made.runs(newest=2)) == ["4-ddppo-x8-seed-0", "late"]
        assert ids(made.runs([("system", "ver")], 1)) == ["2-ver-x8-seed-1"]
        assert ids(made.runs(newest=0)) == []


def test_bases_are_what_runs_are_scaled_against(runs: Path) -> None:
    """Beside runs on 8 GPUs come those of their sweep and work on the fewest, and none that were listed already."""
    with opened(runs) as made:
        assert ids(made.bases([("gpus", "8")])) == ["0-ver-x1-seed-0", "3-ddppo-x1-seed-0"]
        assert ids(made.bases([("gpus", "8"), ("system", "ver")])) == ["0-ver-x1-seed-0"]
        assert ids(made.bases(newest=2)) == ["3-ddppo-x1-seed-0"]
        assert made.bases() == made.bases([("gpus", "1"), ("system", "ddppo")]) == []


def test_bases_have_finished(runs: Path) -> None:
    """When the run on 1 GPU failed, the one on 2 is the base."""
    failed = make_record("appo", 1, id="a", status="failed", reason="died", steps_per_s=None)
    for record in (failed, make_record("appo", 2, id="b"), make_record("appo", 8, id="c")):
        write_run_folder(runs / "sweep-1", record)
    with opened(runs) as made:
        assert ids(made.bases([("gpus", "8"), ("system", "appo")])) == ["b"]


def test_durations_are_those_of_the_latest_run(runs: Path) -> None:
    """Of a cell that was run twice the later run says how long it takes."""
    again = make_record("ver", 1, id="again", cell={"hash": "ver-1-0"}, duration_s=77)
    write_run_folder(runs / "sweep-1", again.model_copy(update={"started_at": "2026-01-03T00:00:00+00:00"}))
    with opened(runs) as made:
        durations = made.durations()
    assert durations["ver-1-0"] == 77
    assert durations["ddppo-8-0"] == 14


def test_the_same_folder_given_twice(runs: Path) -> None:
    """A folder that is named twice is listed once."""
    with closing(Index([*run_folders(runs), *run_folders(runs / "sweep-1")])) as made:
        assert made.count() == 6


def test_import_is_light() -> None:
    """Listing loads neither pandas nor pyarrow, which take longer to load than 10,000 runs to list."""
    heavy = ["pandas", "pyarrow", "numpy", "scipy"]
    program = f"import rlbench.results.records.index, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
