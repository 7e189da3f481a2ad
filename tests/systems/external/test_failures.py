from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.harness.runs import RunningSweep, wait_until
from tests.systems.external.trainer_runs import TRAINERS, Ran, run_trainer, run_trainers, script, write_trainer

STEPS = """
import sys, time, gymnasium, rlbench_client
env = rlbench_client.count(gymnasium.make("CartPole-v1"))
def play(num):
    env.reset()
    for _ in range(num):
        *_, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            env.reset()
def words():
    from rlbench_client.counters import FOLDER_VARIABLE
    import mmap, os, pathlib
    (path,) = pathlib.Path(os.environ[FOLDER_VARIABLE]).glob("*.counters")
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
play(100)
"""
"""A trainer that has counted something."""
WRITES = """
import os, time
from pathlib import Path
with open(Path(os.environ["RLBENCH_COUNTERS"]) / "mine.counters", "wb") as file:
    file.write({data})
time.sleep(1000)
"""


UNMEASURABLE = (
    ("print('hello'); [][1]", "its command exited with 1: IndexError: list index out of range"),
    ("pass", "its command exited with 0 and counted no env step: wrap its environments, see docs/external.md"),
    ("raise SystemExit(3)", "its command exited with 3"),
    ("import os; os.kill(os.getpid(), 11)", "its command was killed by SIGSEGV"),
    ("raise ValueError('no such\\nlayer')", "its command exited with 1: ValueError: no such"),
    (STEPS + "raise KeyError('weights')", "its command exited with 1: KeyError: 'weights'"),
    (WRITES.format(data="b'garbage'"), "mine.counters: is no file of counters: it has 7 bytes, not "),
    (WRITES.format(data="b'x' * 13000"), "mine.counters: is no file of counters"),
    (STEPS + "words()[4] = 2**60; time.sleep(1000)", "env_steps=1152921504606846976: must be from 0 to 9,0"),
    (
        STEPS + "seen = words()\nwhile True:\n    seen[4] = 103 - seen[4]; time.sleep(0.2)",
        "env_steps went back from 100 to 3",
    ),
)
"""What a trainer does, and what is said of it. The last shows one count and the other in turn, whenever one looks."""


@pytest.fixture(scope="module")
def unmeasurable(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    """One sweep of all of them."""
    return run_trainers(tmp_path_factory.mktemp("unmeasurable"), [code for code, _ in UNMEASURABLE])


@pytest.mark.parametrize("number", range(len(UNMEASURABLE)))
def test_trainers_that_cannot_be_measured(unmeasurable: list[Ran], number: int) -> None:
    """Each fails with one line that says what it did, and leaves no process."""
    ran = unmeasurable[number]
    assert (ran.code, ran.record["status"], ran.num_left) == (1, "failed", 0)
    assert UNMEASURABLE[number][1] in ran.reason
    assert "\n" not in ran.reason


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    """A program that the kernel does not take is named, with the kernel's reason."""
    (tmp_path / "train.sh").write_bytes(b"\x7fELF but no program")
    (tmp_path / "train.sh").chmod(0o755)
    ran = run_trainer(tmp_path, "./train.sh")
    assert "./train.sh: cannot be started: [Errno 8] Exec format error" in ran.reason


def test_its_own_traceback_comes_first(unmeasurable: list[Ran]) -> None:
    """`traceback.txt` begins with what went wrong in the trainer, and its output is kept."""
    ran = unmeasurable[0]
    lines = ran.text("traceback.txt").splitlines()
    assert "first in its output" in lines[0]
    assert lines[2] == "Traceback (most recent call last):"
    assert "IndexError: list index out of range" in lines[:6]
    assert "hello" in ran.text("stdout.txt")


def test_a_trainer_whose_learner_dies(tmp_path: Path) -> None:
    """Its other processes wait for ever: the run fails within the stall limit, with the learner's traceback."""
    command = "{python} {trainers}/orphans.py 2 raises"
    ran = run_trainer(tmp_path, command, "--seconds", "300", "--stall", "3")
    assert (ran.record["status"], ran.num_left) == ("failed", 0)
    assert "nothing was stepped or learned for 3 s (--stall) after it had raised: ValueError: the first" in ran.reason
    assert ran.record["counters"]["env_steps"] > 0


def test_a_trainer_that_stops_stepping(tmp_path: Path) -> None:
    """Without a traceback, the stall watch of all systems ends it."""
    ran = run_trainer(tmp_path, script(STEPS + "time.sleep(1000)"), "--seconds", "300", "--stall", "1")
    assert (ran.record["status"], ran.num_left) == ("failed", 0)
    assert "nothing was stepped or learned for " in ran.reason


def test_a_trainer_of_too_many_processes(tmp_path: Path) -> None:
    """One that forks without end is ended at its limit."""
    code = "import os, time\nfor _ in range(300):\n    if not os.fork():\n        time.sleep(1000)\ntime.sleep(1000)"
    ran = run_trainer(tmp_path, script(code), **{"limits.processes": 20})
    assert (ran.record["status"], ran.num_left) == ("failed", 0)
    assert "processes, more than 20 (limits.processes)" in ran.reason


def test_a_trainer_that_prints_without_end(tmp_path: Path) -> None:
    """Its output is bounded, and it is not held up by it."""
    code = STEPS + "for _ in range(300):\n    print('x' * 2**20)\nfor _ in (1, 2):\n    play(100); time.sleep(1)"
    ran = run_trainer(tmp_path, script(code), **{"limits.output_mib": 1})
    assert ran.record["counters"]["env_steps"] == 300
    assert (ran.folder / "stdout.txt").stat().st_size < 2**20
    assert "bytes are left out here" in ran.text("stdout.txt")


def test_iterations_that_are_not_reported(tmp_path: Path) -> None:
    """A budget of iterations alone, for a trainer that reports none, is an error that says what to do."""
    code = STEPS + "while True:\n    play(10); time.sleep(0.01)"
    ran = run_trainer(tmp_path, script(code), "--iterations", "5", "--stall", "2")
    assert "--iterations 5: it reported no iteration in 2 s (--stall): it must call rlbench_client.iter" in ran.reason


def test_more_learned_than_collected(tmp_path: Path) -> None:
    """What a trainer reports is held against what its environments counted."""
    code = STEPS + "for _ in range(30):\n    play(10); rlbench_client.learned(30); time.sleep(0.1)"
    ran = run_trainer(tmp_path, script(code))
    assert ran.record["status"] == "invalid"
    assert ran.reason == "conservation broken: 400 env steps collected, but 900 learned"


@pytest.mark.parametrize("module", ["harness.rank", "harness.keeper", "rlbench"])
def test_nothing_outlives_a_killed_process(tmp_path: Path, module: str) -> None:
    """`kill -9` of the rank, the keeper or `rlbench` leaves none of the trainer's processes, orphans included."""
    write_trainer(tmp_path, ["{python}", str(TRAINERS / "orphans.py"), "300", "waits"])
    with RunningSweep(tmp_path, "--systems", "mine=mine.toml", "--device", "cpu", "--scenario", "pointnav") as sweep:
        wait_until(lambda: any(meter.total("env_steps") for meter in sweep.meters(1, 1)), "it steps")
        assert len(sweep.processes()) >= 6
        one = sweep.process.pid if module == "rlbench" else sweep.of_module(module)[0].pid
        os.kill(one, signal.SIGKILL)
        sweep.end()
        wait_until(lambda: not sweep.processes(), "all have ended")
