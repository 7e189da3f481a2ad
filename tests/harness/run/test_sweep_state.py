from __future__ import annotations

import errno
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rlbench.harness.live.state import LIVE_FILE, LiveSweep, Writer
from rlbench.harness.run import sweep_state
from rlbench.harness.run.sweep import PLAN_FILE, Sweep
from rlbench.harness.run.sweep_state import SweepReader, newest
from rlbench.results.records import store
from tests.harness.live.test_display import CELL, Clock
from tests.results.made_records import write_run_folder
from tests.results.summaries import make_run

FAR = Writer.me().model_copy(update={"boot": "another", "host": "far"})
GONE = Writer.me().model_copy(update={"started": 1})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces the monotonic clock."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now_s)
    return clock


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A sweep of two cells."""
    return Sweep.create(tmp_path, [CELL, replace(CELL, seed=4)], ["rlbench"])


def tell(sweep: Sweep, writer: Writer, beat: int = 1) -> None:
    """Leaves what a runner leaves."""
    live = LiveSweep(writer=writer, beat=beat, num_cells=2, num_ended=0, num_failed=0, running=(), num_running=0)
    (sweep.folder / LIVE_FILE).write_text(live.model_dump_json())


def finish(sweep: Sweep, name: str, status: str = "finished") -> None:
    """Leaves a run."""
    reason = None if status == "finished" else "it broke"
    write_run_folder(sweep.folder, make_run("ddppo", 2, id=name, sweep=sweep.id, status=status, reason=reason))


def test_a_sweep_from_its_begin_to_its_end(sweep: Sweep) -> None:
    """Its start, then what its runner says, then the runs that have ended; a cell's latest run counts."""
    reader = SweepReader(sweep.folder)
    state = reader.look()
    assert (state.phase, state.labels, state.ended) == ("runs", tuple(cell.label for cell in sweep.cells), ())
    assert state.live is not None
    assert (state.live.phase, state.live.writer) == ("starts", Writer.me())
    tell(sweep, Writer.me())
    finish(sweep, "002-ddppo", "failed")
    state = reader.look()
    assert state.phase == "runs"
    assert [(cell.number, cell.label) for cell in state.ended] == [(2, sweep.cells[1].label)]
    assert state.num_finished == 0
    finish(sweep, "002-ddppo-try2")
    finish(sweep, "001-ddppo")
    finish(sweep, "somebody-elses")
    (sweep.folder / "003-damaged").mkdir()
    (sweep.folder / "003-damaged" / "run.json").write_text("{")
    (sweep.folder / LIVE_FILE).unlink()
    state = reader.look()
    assert state.phase == "over"
    assert [(cell.number, cell.run.record.id) for cell in state.ended] == [(1, "001-ddppo"), (2, "002-ddppo-try2")]
    assert (state.num_finished, len(state.runs)) == (2, 4)
    assert [each.path.name for each in state.unreadable] == ["003-damaged"]


def test_a_runner_that_is_gone_is_seen_at_once(sweep: Sweep) -> None:
    """On the machine where it ran: the process tells, not the age of the file."""
    tell(sweep, GONE)
    state = SweepReader(sweep.folder).look()
    assert (state.phase, state.has_ended) == ("gone", True)


@pytest.mark.parametrize(("writer", "last"), [(Writer.me(), "quiet"), (FAR, "gone")])
def test_a_runner_without_news(sweep: Sweep, clock: Clock, writer: Writer, last: str) -> None:
    """Where it is not known whether it lives, it is waited for a minute; where it lives, for ever."""
    reader = SweepReader(sweep.folder)
    for beat in (1, 2):
        tell(sweep, writer, beat)
        assert reader.look().phase == "runs"
        clock.now_s += sweep_state.QUIET_S + 1
        state = reader.look()
        assert (state.phase, state.quiet_s) == ("quiet", sweep_state.QUIET_S + 1)
    clock.now_s += sweep_state.GONE_S
    assert reader.look().phase == last


def test_a_plan_that_nobody_runs_is_over_until_somebody_resumes_it(sweep: Sweep) -> None:
    """At once: whoever runs it says so before the plan is there."""
    (sweep.folder / LIVE_FILE).unlink()
    reader = SweepReader(sweep.folder)
    assert reader.look().phase == "over"
    tell(sweep, Writer.me())
    assert reader.look().phase == "runs"


def test_a_runner_that_died_before_its_first_cell_is_gone(tmp_path: Path) -> None:
    """With the plan it has left word that it was to run it; without a plan there is no sweep."""
    make = "import sys; from pathlib import Path; from rlbench.harness.run.sweep import Sweep\n"
    make += "Sweep.create(Path(sys.argv[1]), [], [])"
    subprocess.run([sys.executable, "-c", make, str(tmp_path)], check=True)
    state = SweepReader(newest(tmp_path)).look()
    assert (state.phase, state.live is not None and state.live.phase) == ("gone", "starts")
    (state.folder / PLAN_FILE).unlink()
    with pytest.raises(ValueError, match="holds no sweep"):
        newest(tmp_path)


def test_a_plan_that_cannot_be_written_leaves_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may be full just then."""

    def write(path: Path, text: str) -> None:
        if path.name == PLAN_FILE:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, text)

    write_whole = store.write_whole
    monkeypatch.setattr(store, "write_whole", write)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        Sweep.create(tmp_path, [CELL], ["rlbench"])
    assert not list(tmp_path.rglob("*.json"))


def test_a_live_file_that_is_damaged_is_named(sweep: Sweep, clock: Clock) -> None:
    """The runs are shown all the same; what cannot be read is waited for as what does not change."""
    (sweep.folder / LIVE_FILE).write_text("{")
    finish(sweep, "001-ddppo")
    reader = SweepReader(sweep.folder)
    state = reader.look()
    assert state.num_finished == 1
    assert "live.json: is damaged" in state.unreadable[0].reason
    assert state.phase == "runs"
    clock.now_s += sweep_state.GONE_S + 1
    assert reader.look().phase == "gone"


def test_the_newest_sweep_of_a_folder(sweep: Sweep, tmp_path: Path) -> None:
    """By name, as `--resume` takes it; a sweep's own folder is that sweep."""
    later = Sweep.create(tmp_path, sweep.cells, ["rlbench"])
    assert newest(tmp_path) == later.folder
    assert newest(sweep.folder) == sweep.folder
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder, what in ((tmp_path / "none", "is not there"), (empty, "holds no sweep")):
        with pytest.raises(ValueError, match=what):
            newest(folder)


def test_a_damaged_plan_is_refused(sweep: Sweep) -> None:
    """In one line, without the advice for those who run it."""
    (sweep.folder / PLAN_FILE).write_text("[]")
    with pytest.raises(ValueError, match=r"sweep.json: is damaged \(.*\); name the folder of another sweep"):
        SweepReader(sweep.folder)
