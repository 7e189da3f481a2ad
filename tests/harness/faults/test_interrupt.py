"""The whole harness ends in the middle of a sweep, in every way there is; `--resume` completes it in the end."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.runs import END_LIMIT_S, FAULTY_SWEEP, RunningSweep, stop, wait_until
from tests.lanes import deep

TAGS = ("a", "b", "c")


@dataclass(kw_only=True, slots=True)
class Stage:
    """What one `rlbench run` of the chain left."""

    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    left: list[psutil.Process] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    outlived_s: float = 0.0
    runs: dict[int, list[dict[str, Any]]] = field(default_factory=dict)


def _left(sweep: RunningSweep) -> Stage:
    """What there is after a sweep's end, which it waits for."""
    exit_code = sweep.end()
    began = time.monotonic()
    with suppress(AssertionError):  # what is left is found below
        wait_until(lambda: not sweep.processes(), "all have ended")
    return Stage(
        exit_code=exit_code,
        stdout=sweep.stdout,
        stderr=sweep.stderr,
        left=sweep.processes(),
        files=sweep.files_left(),
        outlived_s=time.monotonic() - began,
        runs={number: sweep.runs(number) for number in range(1, 1 + len(TAGS))},
    )


def _killed(folder: Path) -> Stage:
    """The first cell finishes; SIGKILL hits the harness in the second."""
    scenarios = ",".join(f"faulty/patient:tag={tag}" for tag in TAGS)
    with RunningSweep(folder, *FAULTY_SWEEP, "--scenario", scenarios) as sweep:
        sweep.release("a")
        sweep.wait_collecting(2)
        sweep.process.kill()
        return _left(sweep)


def _interrupted(folder: Path) -> Stage:
    """Ctrl-C, pressed three times, while the second cell collects."""
    with RunningSweep(folder, "--resume") as sweep:
        sweep.wait_collecting(2)
        (keeper,) = sweep.of_module("rlbench.harness.run.keeper")
        stop(keeper)  # or the command may be over before the third
        for _ in range(3):
            os.killpg(sweep.process.pid, signal.SIGINT)  # as a terminal does
            time.sleep(0.01)
        keeper.send_signal(signal.SIGCONT)
        return _left(sweep)


def _terminated(folder: Path) -> Stage:
    """SIGTERM while the processes of the second cell start."""
    with RunningSweep(folder, "--resume") as sweep:
        wait_until(lambda: sweep.of_module("rlbench.harness.launch.rank"), "a rank starts")
        sweep.process.terminate()
        return _left(sweep)


def _completed(folder: Path) -> Stage:
    """`nohup`: the terminal goes away, the harness is stopped for a while, and all the same it completes the sweep.

    An interrupt hits each process of the run, and not the command.
    """
    with RunningSweep(folder, "--resume", wrapper=("nohup",)) as sweep:
        partial = sweep.wait_collecting(2)
        for one in sweep.of_runs():
            one.send_signal(signal.SIGINT)  # to all of a job, as Slurm may; it is the command's to end them
        sweep.process.send_signal(signal.SIGHUP)
        sweep.process.send_signal(signal.SIGSTOP)
        sweep.release("b")
        wait_until((partial / "outcome.json").exists, "the run ends without its runner")
        sweep.process.send_signal(signal.SIGCONT)
        sweep.release("c")
        return _left(sweep)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stage]:
    """One sweep of three cells, killed, resumed, interrupted, resumed, terminated, resumed and completed."""
    folder = tmp_path_factory.mktemp("interrupted")
    return {stage.__name__: stage(folder) for stage in (_killed, _interrupted, _terminated, _completed)}


def test_a_killed_harness_leaves_no_process(stages: dict[str, Stage]) -> None:
    """After kill -9 of `rlbench run`, all processes of the run end by themselves."""
    killed = stages["_killed"]
    assert killed.exit_code == -signal.SIGKILL
    assert killed.left == []
    assert [len(killed.runs[number]) for number in (1, 2, 3)] == [1, 0, 0]


@deep
def test_they_end_soon(stages: dict[str, Stage]) -> None:
    """Whoever waits for them waits no longer."""
    assert stages["_killed"].outlived_s < END_LIMIT_S


def test_resume_removes_what_a_killed_harness_left(stages: dict[str, Stage]) -> None:
    """The half-written folder of the killed run is there before, is named and gone after."""
    assert [path.name[:12] for path in stages["_killed"].files] == [".partial-002"]
    assert "removed 1 unfinished run folder that" in stages["_interrupted"].stderr


@pytest.mark.parametrize("name", ["_interrupted", "_terminated"])
def test_an_interrupted_sweep_leaves_nothing_and_says_how_to_go_on(stages: dict[str, Stage], name: str) -> None:
    """Ctrl-C, however often, and SIGTERM, even during start-up: exit code 130, no process, no half a run.

    The table of what has finished is on stdout, and how to go on is the last line on stderr.
    """
    stage = stages[name]
    assert stage.exit_code == 130
    assert stage.left == []
    assert stage.files == []
    assert stage.stderr.splitlines()[-1].startswith("rlbench: interrupted; `rlbench run --resume --out")
    assert "sync " in stage.stdout
    assert stage.stdout.splitlines()[-1].startswith("runs: ")


def test_resume_completes_the_sweep_without_repeating_finished_cells(stages: dict[str, Stage]) -> None:
    """Each cell has one finished run in the end, and the first cell's is the one of before the kill."""
    completed = stages["_completed"]
    assert completed.exit_code == 0
    assert "1 of 3 cells finished" in completed.stderr
    assert [[run["status"] for run in runs] for runs in completed.runs.values()] == [["finished"]] * 3
    assert completed.runs[1] == stages["_killed"].runs[1]
    assert completed.left == []
    assert completed.files == []


def test_a_run_outlives_its_terminal_and_a_stopped_harness(stages: dict[str, Stage]) -> None:
    """Under nohup a hang-up is ignored, interrupts are the command's alone, and a run ends well while it is stopped."""
    run = stages["_completed"].runs[2][0]
    assert run["status"] == "finished"
    assert run["figures"]["episode_return"] == 1.0


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=deep)])
def test_an_interrupt_before_the_first_cell_leaves_nothing_either(tmp_path: Path, number: signal.Signals) -> None:
    """While the sweep is still being planned there is nothing to go on with: exit code 130, no traceback, no folder.

    In both lanes SIGTERM comes while the first cell is waited for in `test_zygote.py`.
    """
    with RunningSweep(tmp_path, "--systems", "sync", "--device", "cpu", "--scenario", "faulty/wait-in-plan") as sweep:
        wait_until((tmp_path / "planning").exists, "the sweep is being planned")
        sweep.process.send_signal(number)
        assert sweep.end() == 130
        assert sweep.stderr == ""
        assert not sweep.out.exists()
