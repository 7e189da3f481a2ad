from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.harness.runs import RunningSweep, wait_until
from tests.systems.external.trainer_runs import TRAINERS, Ran, run_trainers, script, write_trainer

PLAYS = """
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
"""
STEPS = f"{PLAYS}play(100)\n"
"""A trainer that has counted something."""
STOPS = f"{PLAYS}rlbench_client.iteration(); play(100); time.sleep(1000)"
"""It reports an iteration before it steps, so that a budget of iterations alone is none of its problems."""
WRITES = """
import os, time
from pathlib import Path
unfinished = Path(os.environ["RLBENCH_COUNTERS"]) / "mine.new"
unfinished.write_bytes({data})
unfinished.rename(unfinished.with_suffix(".counters"))  # the rank may look at any moment
time.sleep(1000)
"""


FORKS = "import os, time\nfor _ in range(100):\n    if not os.fork():\n        time.sleep(1000)\ntime.sleep(1000)"
PRINTS = "for _ in range(50):\n    print('x' * 2**20)\nfor _ in (1, 2):\n    play(100); time.sleep(0.5)"
LEARNS = "for _ in range(30):\n    play(10); rlbench_client.learned(30); time.sleep(0.1)"

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
        " to 3: a counter never falls",
    ),
)
"""What a trainer does, and what is said of it. The last shows one count and the other in turn, and may be seen while it
still counts."""


VICTIMS = ("rlbench.harness.launch.rank", "rlbench.harness.run.keeper", "rlbench")
"""Who is killed, each in a cell of its own; the sweep goes on until the last."""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """One sweep of all of them, by number, and of what shows that limits and counts are held."""
    folder = tmp_path_factory.mktemp("failed")
    (folder / "train.sh").write_bytes(b"\x7fELF but no program")
    (folder / "train.sh").chmod(0o755)
    trainers: dict[str, dict[str, Any]] = {
        f"mine{number}": {"command": script(code)} for number, (code, _) in enumerate(UNMEASURABLE)
    }
    trainers["no-program"] = {"command": "./train.sh"}
    trainers["forks"] = {"command": script(FORKS), "limits.processes": 20}
    trainers["prints"] = {"command": script(STEPS + PRINTS), "limits.output_mib": 1}
    trainers["learns"] = {"command": script(STEPS + LEARNS)}
    return run_trainers(folder, trainers)


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """One sweep of those that get nowhere, with a budget of iterations alone."""
    trainers: dict[str, dict[str, Any]] = {
        "raises": {"command": "{python} {trainers}/orphans.py 2 raises"},
        "stops": {"command": script(STOPS)},
        "unreported": {"command": script(STEPS + "while True:\n    play(10); time.sleep(0.01)")},
    }
    return run_trainers(tmp_path_factory.mktemp("stalled"), trainers, "--iterations", "5", "--stall", "2")


@pytest.mark.parametrize("number", range(len(UNMEASURABLE)))
def test_trainers_that_cannot_be_measured(failed: dict[str, Ran], number: int) -> None:
    """Each fails with one line that says what it did, and leaves no process."""
    ran = failed[f"mine{number}"]
    assert (ran.record["status"], ran.num_left) == ("failed", 0)
    assert UNMEASURABLE[number][1] in ran.reason
    assert "\n" not in ran.reason


def test_a_command_that_cannot_be_started(failed: dict[str, Ran]) -> None:
    """A program that the kernel does not take is named, with the kernel's reason."""
    assert "./train.sh: cannot be started: [Errno 8] Exec format error" in failed["no-program"].reason


def test_its_own_traceback_comes_first(failed: dict[str, Ran]) -> None:
    """`traceback.txt` begins with what went wrong in the trainer, and its output is kept."""
    ran = failed["mine0"]
    lines = ran.text("traceback.txt").splitlines()
    assert "first in its output" in lines[0]
    assert lines[2] == "Traceback (most recent call last):"
    assert "IndexError: list index out of range" in lines[:6]
    assert "hello" in ran.text("stdout.txt")


def test_a_trainer_whose_learner_dies(stalled: dict[str, Ran]) -> None:
    """Its other processes wait for ever: the run fails within the stall limit, with the learner's traceback."""
    ran = stalled["raises"]
    assert (ran.record["status"], ran.num_left) == ("failed", 0)
    assert "nothing was stepped or learned for 2 s (--stall) after it had raised: ValueError: the first" in ran.reason
    assert ran.record["counters"]["env_steps"] > 0


def test_a_trainer_that_stops_stepping(stalled: dict[str, Ran]) -> None:
    """Without a traceback, the stall watch of all systems ends it."""
    ran = stalled["stops"]
    assert (ran.record["status"], ran.num_left) == ("failed", 0)
    assert "nothing was stepped or learned for " in ran.reason
    assert "after it had raised" not in ran.reason


def test_a_trainer_of_too_many_processes(failed: dict[str, Ran]) -> None:
    """One that forks without end is ended at its limit."""
    ran = failed["forks"]
    assert (ran.record["status"], ran.num_left) == ("failed", 0)
    assert "processes, more than 20 (limits.processes)" in ran.reason


def test_a_trainer_that_prints_without_end(failed: dict[str, Ran]) -> None:
    """Its output is bounded, and it is not held up by it."""
    ran = failed["prints"]
    assert ran.record["counters"]["env_steps"] == 300
    assert (ran.folder / "stdout.txt").stat().st_size < 2**20
    assert "bytes are left out here" in ran.text("stdout.txt")


def test_iterations_that_are_not_reported(stalled: dict[str, Ran]) -> None:
    """A budget of iterations alone, for a trainer that reports none, is an error that says what to do."""
    reason = stalled["unreported"].reason
    assert "--iterations 5: it reported no iteration in 2 s (--stall): it must call rlbench_client.iter" in reason


def test_more_learned_than_collected(failed: dict[str, Ran]) -> None:
    """What a trainer reports is held against what its environments counted."""
    ran = failed["learns"]
    assert ran.record["status"] == "invalid"
    assert ran.reason == "conservation broken: 400 env steps collected, but 900 learned"


def test_nothing_outlives_a_killed_process(tmp_path: Path) -> None:
    """`kill -9` of the rank, the keeper or `rlbench` leaves none of the trainer's processes, orphans included."""
    write_trainer(tmp_path, ["{python}", str(TRAINERS / "orphans.py"), "300", "waits"])
    systems = ",".join(f"{module.rpartition('.')[2]}=mine.toml" for module in VICTIMS)
    options = ("--device", "cpu", "--scenario", "pointnav", "--seconds", "300")
    with RunningSweep(tmp_path, "--systems", systems, *options) as sweep:
        for number, module in enumerate(VICTIMS, 1):
            kill_one(sweep, number, module)


def kill_one(sweep: RunningSweep, number: int, module: str) -> None:
    """Kills a process while cell `number` steps; all of its processes end, and the sweep goes on if it can."""
    wait_until(lambda: any(meter.total("env_steps") for meter in sweep.meters(number, 1)), f"{number} steps")
    of_run = set(sweep.of_runs())
    assert len(sweep.processes()) >= 6
    one = sweep.process.pid if module == "rlbench" else sweep.of_module(module)[0].pid
    os.kill(one, signal.SIGKILL)
    if module == "rlbench":
        sweep.end()
        wait_until(lambda: not sweep.processes(), "all have ended")
    else:
        assert sweep.wait_published(number)["status"] == "failed"
        wait_until(lambda: of_run.isdisjoint(sweep.processes()), f"all of {number} have ended")
