"""`rlbench.run` and `rlbench.predict`, with real commands: what they return, raise and leave."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import rlbench
from tests.harness.runs import END_LIMIT_S, RunningSweep, install_faulty, wait_until

QUICK = "emulated/open-fridge:num_envs=2:rollout_steps=8"
CALLER = """
import sys
import rlbench

out, scenario = sys.argv[4], sys.argv[-1]
try:
    rlbench.run("sync", scenario=scenario, device="cpu", until="return>=1", seeds=[0, 1], out=out)
except BaseException as error:
    print(f"{type(error).__name__} {getattr(error, 'code', None)}: {error}")
"""
"""A program that runs a sweep of two cells. Its arguments are the command line that `RunningSweep` would run."""


@contextmanager
def a_program_that_runs(folder: Path) -> Iterator[RunningSweep]:
    """A Python process in a session of its own, whose sweep collects."""
    with RunningSweep(folder, "faulty/patient:tag=a", wrapper=(sys.executable, "-c", CALLER)) as program:
        program.wait_collecting(1)
        yield program


def assert_nothing_left(program: RunningSweep) -> None:
    """All of its processes end soon, and no file is left but whole runs."""
    wait_until(lambda: not program.processes(), "all have ended")
    assert program.files_left() == []


@pytest.mark.parametrize("way", ["to its group, as terminals and notebooks do", "to it alone"])
def test_an_interrupt_ends_it_in_order(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KeyboardInterrupt says how to go on; no process and no half-written run is left, and the sweep is resumed."""
    with a_program_that_runs(tmp_path) as program:
        if way == "to it alone":
            program.process.send_signal(signal.SIGINT)
        else:
            os.killpg(program.process.pid, signal.SIGINT)
        assert program.end() == 0, program.stderr
        assert_nothing_left(program)
        assert program.stdout == (
            f"KeyboardInterrupt None: interrupted; `rlbench run --resume --out {program.out}` goes on\n"
        )
        assert "Traceback" not in program.stderr
        program.release("a")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
        monkeypatch.setenv("FAULTY_RELEASE", str(tmp_path))
        resumed = rlbench.run(resume=True, out=program.out)
        assert list(resumed.runs["status"]) == ["finished", "finished"]


def test_a_caller_that_is_killed(tmp_path: Path) -> None:
    """The command ends in order when its caller is gone, as when a notebook's kernel is started again."""
    with a_program_that_runs(tmp_path) as program:
        program.process.kill()
        program.end()
        psutil.wait_procs(program.processes(), timeout=END_LIMIT_S)
        assert_nothing_left(program)


def test_a_command_that_is_killed(tmp_path: Path) -> None:
    """It is RunFailed, with the signal, and nothing of it is left."""
    with a_program_that_runs(tmp_path) as program:
        (command,) = psutil.Process(program.process.pid).children()
        command.kill()
        assert program.end() == 0, program.stderr
        wait_until(lambda: not program.processes(), "all have ended")
        assert program.stdout == "RunFailed -9: rlbench run: was killed by SIGKILL\n"


def test_a_cell_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is in what is returned, as are the others, and no run of an earlier sweep; the progress is on stderr."""
    install_faulty(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    monkeypatch.setenv("FAULTY_RELEASE", str(tmp_path))
    (tmp_path / "release-a").touch()
    for scenario, statuses in (
        (["faulty/patient:tag=a", "faulty/raise-in-step"], ["finished", "failed"]),
        (["faulty/patient:tag=a"], ["finished"]),
    ):
        results = rlbench.run("sync", scenario=scenario, device="cpu", until="return>=1", out=tmp_path / "runs")
        assert list(results.runs["status"]) == statuses
        assert list(results.findings.query("severity == 'failed'")["num_runs"]) == [1] * statuses.count("failed")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "[2/2] sync faulty/raise-in-step homogeneous x1 seed 0: failed" in printed.err
    assert "steps/s, 95 %" not in printed.err


def test_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are returned as runs are, and say that they are predicted; from another thread too."""
    made: list[rlbench.Results] = []
    thread = threading.Thread(
        target=lambda: made.append(rlbench.predict(["sync", "ver"], gpus=[1, 64], scenario=QUICK, out=tmp_path))
    )
    thread.start()
    thread.join()
    assert made[0].cells[["system", "gpus", "kind"]].to_numpy().tolist() == [
        ["sync", 1, "predicted"],
        ["sync", 64, "predicted"],
        ["ver", 1, "predicted"],
        ["ver", 64, "predicted"],
    ]
    assert set(made[0].comparisons["against"]) == {"sync"}
    assert made[0].summary.runs[0].command[:5] == ["rlbench", "predict", "--systems", "sync,ver", "--gpus"]
    assert str(tmp_path) in capsys.readouterr().err


def test_what_the_command_refuses(tmp_path: Path) -> None:
    """A ValueError with the command's words, and no sweep."""
    with pytest.raises(ValueError, match=r"^unknown system 'varr'; known: appo, "):
        rlbench.run("varr", out=tmp_path / "runs")
    with pytest.raises(ValueError, match=r"^--gpus 1\.5: must be whole numbers such as 1,8 or 1\.\.4$"):
        rlbench.predict("ver", gpus="1.5", out=tmp_path / "runs")
    with pytest.raises(ValueError, match=r"holds no sweep; leave --resume out"):
        rlbench.run(resume=True, out=tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_python_that_has_no_rlbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RunFailed says what Python says."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named rlbench_start" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(rlbench.RunFailed, match=r"^rlbench run: .*: No module named rlbench_start$") as raised:
        rlbench.run("ver", out=tmp_path)
    assert raised.value.code == 1
