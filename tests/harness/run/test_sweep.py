from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.live.state import LIVE_FILE
from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import Request
from rlbench.harness.run.sweep import PLAN_FILE, Sweep
from rlbench.results.reading.untrusted import RECORD_BYTES
from rlbench.results.records import store
from rlbench.results.records.schema import SCHEMA_VERSION, Status
from tests.harness.command import QUICK, assert_refused, call, launch
from tests.results.made_records import make_record, write_run_folder

QUICK_RUN = ("run", "--systems", "sync,ddppo", *QUICK, "--iterations", "2", "--out", "out")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines hold the paths of folders for temporary files, however long these are."""
    monkeypatch.setenv("COLUMNS", "500")


@pytest.fixture
def cells() -> list[Cell]:
    """Two cells."""
    request = Request(
        systems="sync,ddppo",
        gpus="1",
        scenarios="emulated",
        workloads="homogeneous",
        seeds="0",
        device="emulated",
        oversubscribe=False,
        protocol="ddppo",
        limits=Limits(iterations=2),
        stall_s=60,
        time_limit_s=600,
    )
    return plan(request)


def finish(sweep: Sweep, number: int, status: Status = "finished") -> Path:
    """Leaves a record of a cell, as a run would."""
    cell = sweep.cells[number]
    return write_run_folder(
        sweep.folder,
        make_record(
            id=sweep.run_name(cell),
            sweep=sweep.id,
            status=status,
            reason=None if status == "finished" else "it broke",
            cell={"system": cell.system, "hash": cell.hash()},
        ),
    )


def test_a_sweep_comes_back_from_disk(tmp_path: Path, cells: list[Cell]) -> None:
    """The newest sweep of a folder is read back as it was planned."""
    for number in range(5):  # most of them in one second
        Sweep.create(tmp_path / "out", cells[:1], ["rlbench", str(number)])
    (tmp_path / "out" / "20990101-000000-ffff").mkdir()
    made = Sweep.create(tmp_path / "out", cells, ["rlbench", "run"])
    again = Sweep.newest(tmp_path / "out")
    assert (again, again.id) == (made, made.folder.name)
    assert again.cells == tuple(cells)


def test_one_process_at_a_time_runs_a_sweep(tmp_path: Path, cells: list[Cell]) -> None:
    """The lock of a sweep is refused while another process holds it, and free as soon as that is killed."""
    sweep = Sweep.create(tmp_path, cells, ["rlbench"])
    program = (
        "import sys; from pathlib import Path; from rlbench.harness.run.sweep import Sweep\n"
        "with Sweep.newest(Path(sys.argv[1])).lock():\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert_refused_resume(tmp_path, "another rlbench is running this sweep")
        holder.kill()
    with sweep.lock():
        pass


def assert_refused_resume(out: Path, *expected: str) -> None:
    """`--resume` says in one line why it does not."""
    ended = call("run", "--resume", "--out", str(out))
    assert ended.code == 2
    assert ended.err.startswith("rlbench: ")
    assert ended.err.count("\n") == 1
    assert [text for text in expected if text not in ended.err] == []


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_only_finished_cells_are_finished(tmp_path: Path, cells: list[Cell], status: Status) -> None:
    """A cell whose run failed, was told to stop or is half written is to be run again, beside the old one."""
    sweep = Sweep.create(tmp_path, cells, ["rlbench"])
    first = finish(sweep, 0)
    failed = finish(sweep, 1, status)
    partial = sweep.folder / f"{store.PARTIAL_PREFIX}x"
    partial.mkdir()
    assert sweep.finished() == {cells[0].hash()}
    assert sweep.remove_partial() == 1
    assert not partial.exists()
    assert sweep.run_name(cells[1]) == f"{failed.name}-try2"
    assert first.exists()


def test_run_names_are_readable_and_safe(tmp_path: Path, cells: list[Cell]) -> None:
    """A run's folder says which cell it is, in characters that every file system takes."""
    sweep = Sweep.create(tmp_path, cells, ["rlbench"])
    assert sweep.run_name(cells[0]) == "001-sync-emulated-homogeneous-x1-seed-0"
    assert sweep.run_name(cells[1]) == "002-ddppo-emulated-homogeneous-x1-seed-0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("file", ("file: cannot be written", "choose a folder")),
        ("file/inside", ("file/inside: cannot be written",)),
        ("/proc/runs", ("/proc/runs: cannot be written",)),
        ("/dev/null", ("/dev/null: cannot be written",)),
        ("loop", ("loop: cannot be written",)),
        (
            "newer",
            (f"run.json: has schema version {SCHEMA_VERSION + 1}", f"reads up to {SCHEMA_VERSION}", "upgrade rlbench"),
        ),
    ],
)
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_folders_that_cannot_be_used(
    name: str, expected: tuple[str, ...], options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written, or that holds runs of a newer schema, is refused before anything is run."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    Path("newer", "sweep", "run").mkdir(parents=True)
    Path("newer", "sweep", "run", "run.json").write_text(f'{{"schema_version": {SCHEMA_VERSION + 1}}}')
    before = sorted(tmp_path.rglob("*"))
    assert_refused(call("run", "--systems", "sync", *QUICK, "--out", name, *options), *expected)
    assert sorted(tmp_path.rglob("*")) == before
    if name == "newer":
        listed = call("results", name)
        assert (listed.code, listed.err) == (0, "")
        assert [text for text in expected if text not in " ".join(listed.out.split())] == []


def test_damage_of_other_runs_is_a_warning(tmp_path: Path) -> None:
    """A damaged run of another sweep, or one whose record is larger than any may be, stops nothing new."""
    for name, text in (("cut", '{"schema_version":'), ("large", " " * (RECORD_BYTES + 1))):
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "run.json").write_text(text)
    planned = call("run", "--systems", "sync", *QUICK, "--out", str(tmp_path), "--dry-run")
    assert planned.code == 0
    assert "warning: " in planned.err
    assert "other/cut/run.json: is damaged" in planned.err
    assert "(and 1 more; `rlbench results` lists them)" in planned.err
    assert "1 cell," in planned.out


def test_a_damaged_run_of_the_sweep_is_run_again(tmp_path: Path, cells: list[Cell]) -> None:
    """`--resume` names it, and counts its cell as not finished."""
    sweep = Sweep.create(tmp_path, cells, ["rlbench"])
    finish(sweep, 0)
    spoilt = finish(sweep, 1)
    (spoilt / "run.json").write_text("{")
    ended = call("run", "--resume", "--dry-run", "--out", str(tmp_path))
    assert ended.code == 0
    assert "run.json: is damaged" in " ".join(ended.err.split())
    assert "1 of 2 cells finished" in ended.err


def test_nothing_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--resume` without a sweep, with a damaged one, or with half of the options is refused in one line."""
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    for number, text in enumerate(('{"command": [], "cells": 3}', '{"command": [], "cells": [{}]}', "{", "\x00", "[]")):
        Path(f"damaged{number}", "20200101-000000-abcd").mkdir(parents=True)
        Path(f"damaged{number}", "20200101-000000-abcd", PLAN_FILE).write_text(text)
        assert_refused(call("run", "--resume", "--out", f"damaged{number}"), f"{PLAN_FILE}: is damaged", "--resume")
    for name in ("empty", "missing"):
        assert_refused(call("run", "--resume", "--out", name), f"--resume: {name} holds no sweep")


def test_resume_takes_the_same_options_or_none(tmp_path: Path, cells: list[Cell]) -> None:
    """`--resume` with other cells, or with some of the options alone, is refused: it would measure something else."""
    sweep = Sweep.create(tmp_path, cells, ["rlbench", "run", "--systems", "sync,ddppo"])
    out = ("--out", str(tmp_path), "--resume")
    other = call("run", "--systems", "sync", *QUICK, *out)
    assert_refused(other, "planned other cells (rlbench run --systems sync,ddppo)", "give the same options")
    assert_refused(call("run", "--gpus", "4", *out), "--resume: needs all options of the sweep")
    assert sorted(path.name for path in sweep.folder.iterdir()) == [LIVE_FILE, PLAN_FILE]


def test_resume_of_a_finished_sweep_runs_nothing(tmp_path: Path, cells: list[Cell]) -> None:
    """When every cell is finished, `--resume` prints the table and ends with 0."""
    sweep = Sweep.create(tmp_path, cells, ["rlbench"])
    finish(sweep, 0)
    finish(sweep, 1)
    (sweep.folder / LIVE_FILE).unlink()
    before = {path: path.stat().st_mtime_ns for path in sweep.folder.rglob("*")}
    ended = call("run", "--resume", "--out", str(tmp_path))
    assert ended.code == 0
    assert "2 of 2 cells finished" in ended.err
    assert ended.out.splitlines()[-1].startswith("runs: ")
    assert {path: path.stat().st_mtime_ns for path in sweep.folder.rglob("*")} == before


def test_resume_completes_a_sweep(tmp_path: Path) -> None:
    """A resumed sweep runs what is missing, keeps what is there, and says so; a dry run says it and does not."""
    planned = call(*QUICK_RUN[:-1], str(tmp_path / "out"), "--dry-run")
    assert planned.code == 0
    made = Sweep.create(tmp_path / "out", _planned(), ["rlbench", *QUICK_RUN])
    kept = finish(made, 0)
    (made.folder / f"{store.PARTIAL_PREFIX}002").mkdir()
    dry = call("run", "--resume", "--dry-run", "--out", str(tmp_path / "out"))
    assert dry.code == 0
    assert "1 of 2 cells finished" in dry.err
    assert "[1/1] ddppo emulated/open-fridge" in dry.out
    before = kept.stat().st_mtime_ns
    ended = launch(*QUICK_RUN, "--resume", "--time-limit", "300", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert "1 of 2 cells finished" in ended.err
    assert "removed 1 unfinished run folder" in ended.err
    runs = json.loads(call("results", str(tmp_path / "out"), "--json").out)
    assert [(run["cell"]["system"], run["status"]) for run in runs] == [("sync", "finished"), ("ddppo", "finished")]
    assert runs[1]["counters"]["learned"] == 2 * 2 * 8
    assert kept.stat().st_mtime_ns == before
    assert [path for path in made.folder.iterdir() if path.name.startswith(store.PARTIAL_PREFIX)] == []


def _planned() -> list[Cell]:
    """The cells of `QUICK_RUN`."""
    request = Request(
        systems="sync,ddppo",
        gpus="1",
        scenarios=f"{QUICK[1]}:time_scale=0.02",
        workloads="homogeneous",
        seeds="0",
        device="emulated",
        oversubscribe=False,
        protocol="steady",
        limits=Limits(iterations=2),
        stall_s=60,
        time_limit_s=3600,
    )
    return plan(request)
