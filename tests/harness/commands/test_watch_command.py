"""`rlbench watch` beside real sweeps: of their folder alone, until they end, are interrupted, or are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlbench.harness.live.state import LIVE_FILE, LiveSweep, write_live
from tests.harness.command import RLBENCH, assert_refused, call
from tests.harness.runs import FAULTY_SWEEP, PATIENCE_S, RunningSweep, wait_until
from tests.harness.sweeps import write_sweep

TWO = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a,faulty/patient:tag=b")


@contextmanager
def watching(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Watches the newest sweep in a folder; what is left is killed."""
    command = [str(RLBENCH), "watch", str(folder)]
    as_wide = os.environ | {"COLUMNS": "300"}  # as the sweep's
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=as_wide) as watch:
        try:
            yield watch
        finally:
            watch.kill()


def files(folder: Path) -> dict[Path, int]:
    """What a folder holds, with the times of its files."""
    return {path: path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_a_sweep_is_watched_to_its_end(tmp_path: Path) -> None:
    """Cells that have ended and how far the others are come on stderr, the table on stdout; the sweep is as without."""
    with RunningSweep(tmp_path, *TWO) as sweep:
        wait_until(lambda: list(sweep.out.glob(f"*/{LIVE_FILE}")), "its runner says how far it is")
        sweep.wait_collecting(1)
        with watching(sweep.out) as watch:
            assert watch.stderr is not None
            first, second = watch.stderr.readline(), watch.stderr.readline()
            assert first.startswith(f"watching {sweep.out}/")
            assert second.startswith("[1/2] sync faulty/patient:tag=a ")
            for tag in ("a", "b"):
                sweep.release(tag)
            assert sweep.end() == 0
            out, err = watch.communicate(timeout=PATIENCE_S)
        assert watch.returncode == 0
        assert out == sweep.stdout
        assert [f"[{number}/2] sync faulty/patient:tag={tag}" in err for number, tag in ((1, "a"), (2, "b"))] == [
            True
        ] * 2
        assert err.count(": finished, ") == 2
        assert err.splitlines()[-1] == "the sweep is over: 2 of 2 cells finished"
        assert not list(sweep.out.glob(f"*/{LIVE_FILE}"))


def test_a_killed_runner_is_noticed_and_ctrl_c_leaves_a_sweep_alone(tmp_path: Path) -> None:
    """After kill -9 the watch ends by itself, with what has ended and the command that goes on."""
    with RunningSweep(tmp_path, *TWO) as sweep:
        sweep.release("a")
        sweep.wait_published(1)
        sweep.wait_collecting(2)
        with watching(sweep.out) as first, watching(sweep.out) as second:
            for watch in (first, second):
                assert watch.stderr is not None
                assert watch.stderr.readline().startswith("watching ")
                assert "[1/2]" in watch.stderr.readline()
            first.send_signal(signal.SIGINT)
            assert first.wait(PATIENCE_S) == 0
            assert sweep.process.poll() is None
            sweep.process.kill()
            out, err = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 1
        assert "faulty/patient:tag=a" in out
        how = f"process {sweep.process.pid}, which ran the sweep, is gone; 1 of 2 cells finished; `rlbench run --resume"
        assert err.splitlines()[-1].startswith(how)
        wait_until(lambda: not sweep.processes(), "all have ended")


def test_an_interrupted_sweep_is_over(tmp_path: Path) -> None:
    """Ctrl-C in the other shell: the table of what has finished is the same in both."""
    with RunningSweep(tmp_path, *TWO) as sweep:
        sweep.release("a")
        sweep.wait_published(1)
        sweep.wait_collecting(2)
        with watching(sweep.out) as watch:
            assert watch.stderr is not None
            watch.stderr.readline()
            sweep.process.send_signal(signal.SIGINT)
            assert sweep.end() == 130
            out, err = watch.communicate(timeout=PATIENCE_S)
        assert watch.returncode == 0
        assert out == sweep.stdout
        assert "faulty/patient:tag=a" in out
        assert err.splitlines()[-1] == "the sweep is over: 1 of 2 cells finished"


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that somebody sent is looked at, and stays as it is."""
    monkeypatch.chdir(tmp_path)
    write_sweep(tmp_path / "runs").joinpath("sweep.json").write_text('{"command": ["rlbench"], "cells": []}')
    before = files(tmp_path)
    ended = call("watch", "runs")
    assert ended.code == 0
    assert "runs: runs/20260101-000000-abcd" in ended.out
    assert ended.err.endswith("the sweep is over: 0 of 0 cells finished\n")
    assert files(tmp_path) == before


@pytest.mark.parametrize(("command", "goes_on"), [("run", True), ("predict", False)])
def test_only_runs_are_taken_up_again(tmp_path: Path, command: str, *, goes_on: bool) -> None:
    """A prediction whose process is gone is made anew."""
    sweep = write_sweep(tmp_path)
    sweep.joinpath("sweep.json").write_text(json.dumps({"command": ["rlbench", command], "cells": []}))
    begun = LiveSweep.begins(4)
    write_live(sweep, begun.model_copy(update={"writer": begun.writer.model_copy(update={"started": 1})}))
    ended = call("watch", str(sweep))
    assert ended.code == 1
    assert f"process {begun.writer.pid}, which ran the sweep, is gone; 0 of 0 cells finished" in ended.err
    assert ("--resume" in ended.err) == goes_on


def test_there_is_nothing_to_watch(tmp_path: Path) -> None:
    """It is said in one line, with what to name."""
    assert_refused(
        call("watch", str(tmp_path / "none")), "none: is not there; name the folder that `rlbench run --out`"
    )
    assert_refused(call("watch", str(tmp_path)), "holds no sweep")
    (tmp_path / "sweep.json").write_text("{")
    assert_refused(call("watch", str(tmp_path)), "sweep.json: is damaged", "name the folder of another sweep")
