"""Folders that somebody moves or removes while a sweep runs in them: what was measured is kept."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbench.harness.processes.held import Held
from rlbench.harness.run.end_of_run import REMOVED
from rlbench.harness.run.sweep import Sweep
from rlbench.harness.run.sweep_folder import CannotWrite, SweepFolder
from rlbench.results.records.store import load_run
from tests.harness.runs import FAULTY_SWEEP, RunningSweep, stop, wait_until
from tests.results.made_records import make_record

CELLS = (*FAULTY_SWEEP, "--scenario", ",".join(f"faulty/patient:tag={tag}" for tag in "abc"))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSweep]:
    """A sweep of three cells that has ended.

    In the first cell the working folder is removed and the folder of all runs is renamed, in the second the folder of
    the run is removed, in the third that of the sweep.
    """
    folder = tmp_path_factory.mktemp("moved")
    working = folder / "working"
    working.mkdir()
    with RunningSweep(folder, *CELLS, wrapper=("env", "-C", str(working))) as sweep:
        sweep.wait_collecting(1)
        working.rmdir()
        sweep.out = sweep.out.rename(folder / "renamed")
        sweep.release("a")
        shutil.rmtree(sweep.wait_collecting(2))
        wait_until(lambda: sweep.partial(2), "the folder of the run is there again")
        sweep.release("b")
        third = sweep.wait_collecting(3)
        shutil.copytree(third.parent, folder / "before", ignore=shutil.ignore_patterns(".*"))
        (keeper,) = sweep.of_module("rlbench.harness.run.keeper")
        stop(keeper)  # it would make one folder anew while the other is removed
        shutil.rmtree(third.parent)
        keeper.send_signal(signal.SIGCONT)
        wait_until(lambda: sweep.partial(3), "both folders are there again")
        sweep.release("c")
        assert sweep.end(3) == 1, "two cells' runs were removed with the sweep's folder"
        yield sweep


def test_runs_end_as_if_nothing_had_happened(swept: RunningSweep) -> None:
    """All are finished, with each env step accounted for, and can be read."""
    before = sorted((swept.folder / "before").glob("0*"))
    after = [record["path"] for record in swept.runs(3)]
    records = [load_run(path).record for path in [*before, *after]]
    assert [record.status for record in records] == ["finished"] * 3
    assert all(record.counters.conserved and record.counters.learned for record in records)
    assert all(record.figures.steps_per_s for record in records)
    assert all((path / "policy.pt").exists() for path in [*before, *after])


def test_a_run_whose_folder_was_removed_says_so(swept: RunningSweep) -> None:
    """What had been written and closed is lost, which a warning says; that a folder was renamed changes nothing."""
    before = sorted((swept.folder / "before").glob("0*"))
    warnings = [load_run(path).record.warnings for path in [*before, swept.runs(3)[0]["path"]]]
    assert [sum(warning == REMOVED for warning in each) for each in warnings] == [0, 1, 1]


def test_the_place_of_the_runs_is_named(swept: RunningSweep) -> None:
    """The last line is where the runs are; a removed sweep's plan is there again, for --resume."""
    assert swept.stdout.splitlines()[-1].startswith(f"runs: {swept.folder / 'renamed'}/")
    assert "was removed while its sweep runs; its runs are kept in" in swept.stderr
    assert len(list(swept.out.glob("*/sweep.json"))) == 1
    assert "Traceback" not in swept.stderr


def test_nothing_else_is_left(swept: RunningSweep) -> None:
    """No half-written run, no temporary file, no process."""
    assert (swept.files_left(), swept.processes()) == ([], [])


def test_a_run_that_cannot_have_its_name_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its name is taken by somebody, nothing of either is lost, and the place is in the error."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sweep = Sweep.create(tmp_path / "out", [], ["rlbench"])
    record = make_record(id="001")
    (sweep.folder / "001" / "somebody's").mkdir(parents=True)
    (sweep.folder / ".partial-001").mkdir()
    (sweep.folder / ".partial-001" / "series").write_text("measured")
    os.mkfifo(sweep.folder / ".partial-001" / "pipe")
    with (
        SweepFolder(sweep, print) as sweep_folder,
        Held(sweep.folder / ".partial-001") as partial,
        pytest.raises(CannotWrite, match=r"a run never replaces another.*; the run is kept in ") as caught,
    ):
        sweep_folder.publish(partial, record)
    kept = Path(str(caught.value).rpartition(" ")[2])
    assert (kept / "series").read_text() == "measured"
    assert load_run(kept).record == record
    assert (sweep.folder / "001" / "somebody's").exists()


def test_a_plan_that_is_written_anew_is_locked(tmp_path: Path) -> None:
    """Nobody takes a sweep up that goes on in a folder that was made anew."""
    sweep, said = Sweep.create(tmp_path / "out", [], ["rlbench"]), list[str]()
    with sweep.lock(), SweepFolder(sweep, said.append) as sweep_folder:
        shutil.rmtree(sweep.folder)
        sweep_folder._look()
        again = Sweep.newest(tmp_path / "out")
        with pytest.raises(ValueError, match="another rlbench is running this sweep"), again.lock():
            pass
    assert len(said) == 1
    with again.lock():
        pass
