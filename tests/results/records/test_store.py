from __future__ import annotations

import json
import math
import os
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest

from rlbench.results.records.parts import SERIES_FILE, read_parts
from rlbench.results.records.schema import SCHEMA_VERSION
from rlbench.results.records.store import (
    PARTIAL_PREFIX,
    RUN_FILE,
    check_writable,
    half_written,
    publish,
    read_runs,
    run_folders,
    write_run,
    write_whole,
)
from tests.results.made_records import make_record, write_run_folder


def test_published_run_is_read_back(tmp_path: Path) -> None:
    """What was written in a partial folder is read back, whole, once published, and not before."""
    partial, final = tmp_path / ".partial-a", tmp_path / "a"
    (partial / "logs").mkdir(parents=True)
    (partial / "logs" / "rank0.txt").write_text("hello")
    record = make_record(id="a")
    write_run(partial, record)
    assert read_runs(tmp_path) == []
    publish(partial, final)
    assert not partial.exists()
    assert (final / "logs" / "rank0.txt").read_text() == "hello"
    assert [(run.path, run.record) for run in read_runs(tmp_path)] == [(final, record)]


def test_a_record_that_can_be_written_is_not_made_anew(tmp_path: Path) -> None:
    """What recordable() has made is written as it is: a record of many ranks is not built twice."""
    with patch("rlbench.results.records.store.recordable", side_effect=AssertionError):
        write_run(tmp_path, make_record())
    assert (tmp_path / RUN_FILE).exists()


def test_publish_never_replaces_a_run(tmp_path: Path) -> None:
    """Publishing over an earlier run is refused in one line, and both stay."""
    earlier = write_run_folder(tmp_path, make_record(id="a", duration_s=1))
    partial = write_run_folder(tmp_path, make_record(id=".partial-a", duration_s=2))
    with pytest.raises(ValueError, match=r"a: cannot be written \(.*\); a run never replaces another"):
        publish(partial, earlier)
    assert [run.record.duration_s for run in read_runs(tmp_path)] == [1]
    assert (partial / RUN_FILE).exists()


def test_full_disk(tmp_path: Path) -> None:
    """A full disk is said in one line that names the file and the way out."""
    (tmp_path / RUN_FILE).symlink_to("/dev/full")
    with pytest.raises(ValueError, match=r"run\.json: cannot be written \(No space left on device\); free some space"):
        write_run(tmp_path, make_record())


def test_runs_are_found_two_levels_deep_oldest_first(tmp_path: Path) -> None:
    """A folder of sweeps, a sweep and a single run can all be given; runs come in the order they were started."""
    late = write_run_folder(tmp_path / "sweep-1", make_record(id="a", started_at="2026-01-02T00:00:00+00:00"))
    write_run_folder(tmp_path / "sweep-2", make_record(id="b", started_at="2026-01-01T00:00:00+00:00"))
    write_run_folder(tmp_path / "sweep-2" / "x" / "y", make_record(id="too-deep"))
    write_run_folder(tmp_path / ".partial-sweep", make_record(id="cut-off"))
    assert [run.record.id for run in read_runs(tmp_path)] == ["b", "a"]
    assert [run.record.id for run in read_runs(tmp_path / "sweep-1")] == ["a"]
    assert [run.record.id for run in read_runs(late)] == ["a"]


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    """Runs of a newer rlbench are not read with half an understanding: file, versions and what to do are named."""
    run_file = write_run_folder(tmp_path, make_record(id="a")) / RUN_FILE
    document = json.loads(run_file.read_text()) | {"schema_version": SCHEMA_VERSION + 1, "something": "new"}
    run_file.write_text(json.dumps(document))
    rule = rf"{run_file}: has schema version {SCHEMA_VERSION + 1}, .* up to {SCHEMA_VERSION}; upgrade rlbench"
    with pytest.raises(ValueError, match=rule):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"schema_version": "x"}',
        '{"schema_version": 0}',
        '{"schema_version": 1}',
        "\xff",
    ],
)
def test_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    """A damaged run.json is one line that names the file and how to go on."""
    run_file = write_run_folder(tmp_path, make_record(id="a")) / RUN_FILE
    run_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"run\.json: is damaged \(.+\); move its folder") as caught:
        read_runs(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("figures", "time_shares"), {"learn": math.nan}),
        (("figures", "time_scale"), math.inf),
        (("figures", "lag"), {"mean": math.nan, "max": 1.0}),
        (("cell", "seed"), 2**63),
        (("cell", "gpus"), 2**70),
        (("counters", "env_steps"), 2**63),
        (("duration_s",), -math.inf),
    ],
)
def test_numbers_that_nothing_can_hold_are_damage(tmp_path: Path, place: tuple[str, ...], value: object) -> None:
    """No figure but one that may be missing is NaN or infinite, and no count is too large for a database."""
    run_file = write_run_folder(tmp_path, make_record(id="a")) / RUN_FILE
    document = json.loads(run_file.read_text())
    inside = document
    for name in place[:-1]:
        inside = inside[name]
    inside[place[-1]] = value
    run_file.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=rf"run\.json: is damaged \({'.'.join(place)}.*\); move its folder"):
        read_runs(tmp_path)


@pytest.mark.parametrize("column", ["rank", "iteration", "begin_s", "end_s", "learned"])
@pytest.mark.parametrize("value", [None, "many", math.nan, math.inf])
def test_a_series_of_other_types_is_damage(tmp_path: Path, column: str, value: object) -> None:
    """Nothing, or text, where a series has numbers is named with its file."""
    folder = write_run_folder(tmp_path, make_record(id="a"))
    rows: dict[str, list[object]] = {name: [0, 1, 2] for name in ("rank", "iteration", "begin_s", "end_s", "learned")}
    rows["rank"] = [0, 0, 0]
    rows[column] = [value] * 3
    pd.DataFrame(rows).to_parquet(folder / SERIES_FILE)
    with pytest.raises(ValueError, match=r"series\.parquet: cannot be read .*; move its run folder"):
        read_parts(folder)


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    """Reading from nowhere is an error, not an empty table."""
    with pytest.raises(ValueError, match="nowhere: is not a folder"):
        read_runs(tmp_path / "nowhere")


def test_writable_folder_is_left_as_it_was(tmp_path: Path) -> None:
    """The check makes neither the folder nor a file."""
    check_writable(tmp_path / "new" / "deeper")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/inside", "/proc/rlbench-runs", "/proc/self/mem/x"])
def test_folder_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    """A file in the way and a file system that takes no files are found before any run starts."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot be written \(.+\); choose a folder"):
        check_writable(tmp_path / place)


def test_run_folders_are_listed_without_reading_them(tmp_path: Path) -> None:
    """A folder that holds a `run.json`, whatever is in it, is a run folder; what is still being written is none."""
    kept = write_run_folder(tmp_path / "sweep-1", make_record(id="a"))
    damaged = write_run_folder(tmp_path / "sweep-1", make_record(id="b"))
    (damaged / RUN_FILE).write_text("{")
    write_run_folder(tmp_path / "sweep-1", make_record(id=".partial-c"))
    (tmp_path / "sweep-1" / "notes").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    assert run_folders(tmp_path) == run_folders(tmp_path / "sweep-1") == [kept, damaged]


def test_half_written_runs_are_named(tmp_path: Path) -> None:
    """What killed runs have left is named, in a sweep and in a folder of sweeps, with how to go on; files are not."""
    partial = write_run_folder(tmp_path / "sweep-1", make_record(id=".partial-001-sync"))
    write_run_folder(tmp_path / "sweep-1", make_record(id="a"))
    (tmp_path / "sweep-1" / ".partial-file").write_text("")
    for folder in (tmp_path, tmp_path / "sweep-1"):
        (left,) = half_written(folder)
        assert left.path == partial
        assert left.reason.startswith(f"{partial}: half written")
        assert "rlbench run --resume" in left.reason
    assert half_written(partial) == half_written(tmp_path / "sweep-1" / "a") == []


def test_a_file_that_appears_whole_is_written_nowhere_else(tmp_path: Path) -> None:
    """Links are replaced, whatever names somebody has foreseen; a failure leaves what was there, and nothing else."""
    canary = tmp_path / "canary"
    canary.write_text("kept")
    (tmp_path / "out.txt").symlink_to(canary)
    (tmp_path / f"{PARTIAL_PREFIX}{os.getpid()}-out.txt").symlink_to(canary)
    write_whole(tmp_path / "out.txt", "new")
    assert (canary.read_text(), (tmp_path / "out.txt").read_text()) == ("kept", "new")
    assert not (tmp_path / "out.txt").is_symlink()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", "new")
    assert list(tmp_path.glob(".new-*")) == []


def test_a_link_to_itself_hides_no_runs(tmp_path: Path) -> None:
    """It is passed over, among sweeps and among runs."""
    run = write_run_folder(tmp_path / "sweep", make_record())
    for folder in (tmp_path, tmp_path / "sweep"):
        (folder / "loop").symlink_to("loop")
    assert run_folders(tmp_path) == [run]
