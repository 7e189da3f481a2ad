from __future__ import annotations

import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import pytest

from benchmarks.against import sb3 as against_sb3
from benchmarks.against.measure import Family, Program, Timing, steps_per_s
from benchmarks.peers import venv
from benchmarks.peers.counter import FOLDER_VARIABLE, StepCounter, total_env_steps
from rlbench.harness.plan import libraries

QUICK = Timing(warmup_s=0.1, window_s=0.3)


def program(folder: Path, code: str, *arguments: str) -> Program:
    """Python code that makes a file `step-...` for each env step."""
    return Program(
        name="stand-in",
        command=(sys.executable, "-c", code, *arguments),
        folder=folder,
        count=lambda: len(list(folder.glob("step-*"))),
        variables={},
    )


def count(num_env_steps: int) -> None:
    """Counts in a process of its own."""
    counter = StepCounter()
    for _ in range(num_env_steps):
        counter.add()


def test_env_steps_are_counted_over_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process counts in a file of its own, a fork that inherited a counter too."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    counter = StepCounter()
    counter.add()
    fork = multiprocessing.get_context("fork").Process(target=counter.add)
    spawned = multiprocessing.get_context("spawn").Process(target=count, args=(300,))
    for child in (fork, spawned):
        child.start()
        child.join()
    (tmp_path / "just-made").touch()
    assert total_env_steps(tmp_path) == 302
    assert len(list(tmp_path.iterdir())) == 4


COUNTS = """
import pathlib, time
for i in range(100_000):
    pathlib.Path(f"step-{i}").touch()
    time.sleep(0.01)
"""


def test_a_program_is_measured_and_killed(tmp_path: Path) -> None:
    """The rate is that of the window, whatever was before it, and nothing of the program is left."""
    counted = iter([0, 5, 20, 50])  # until the first env step, then where the window begins and ends
    running = program(tmp_path, COUNTS)
    measured = replace(running, count=lambda: next(counted) if running.count() else 0)
    began = perf_counter()
    rate = steps_per_s(measured, QUICK)
    assert 30 / (perf_counter() - began) <= rate <= 30 / QUICK.window_s
    assert not list(counted)
    steps = running.count()
    assert running.count() == steps


def test_a_program_that_ends_is_an_error_with_its_output(tmp_path: Path) -> None:
    """A peer that dies before the window is over is no measurement."""
    with pytest.raises(RuntimeError, match=r"(?s)stand-in ended.*no such module"):
        steps_per_s(program(tmp_path, "raise SystemExit('no such module')"), QUICK)


LEAVES = """
import mmap, subprocess, sys, pathlib, time
shared = open(f"/dev/shm/{sys.argv[1]}", "w+b")
shared.truncate(4096)
mapped = mmap.mmap(shared.fileno(), 4096)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path("pid.tmp").write_text(str(child.pid))
pathlib.Path("pid.tmp").rename("pid")
time.sleep(600)
"""


def test_descendants_in_other_sessions_are_killed(tmp_path: Path, shm_prefix: str) -> None:
    """Some simulators leave the process group; they end with the measurement, and so does their shared memory."""
    name = f"{shm_prefix}-mapped"
    with Family(program(tmp_path, LEAVES, name)) as family:
        while not (tmp_path / "pid").exists():
            family.stay(0.05)
        pid = int((tmp_path / "pid").read_text())
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
    assert not Path("/dev/shm", name).exists()  # noqa: S108  it is where POSIX shared memory lies


def test_an_unknown_peer_names_the_known_ones() -> None:
    """A typing error lists what there is."""
    with pytest.raises(ValueError, match=r"peer ray: unknown; known: sample_factory, sb3_ppo, rllib_appo"):
        venv.peer_python("ray")


@pytest.mark.parametrize("peer", venv.DISTRIBUTIONS)
def test_all_requirements_of_peers_are_pinned(peer: str) -> None:
    """The same environment is made on every day, apart from that of the system of the same library."""
    library = venv.Peer(peer=peer)
    lines = [line for line in library.requirements.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if "==" not in line] == []
    assert library.distribution in libraries.pinned(library)
    assert libraries.environment_of(library).name.startswith(f"peer-{peer}-")


def test_our_mini_batches_are_the_peer_s() -> None:
    """16 environments with T 128 make four mini-batches of 512; what cannot be so divided is refused."""
    assert "learn.num_minibatches=4" in against_sb3.system(16)
    with pytest.raises(ValueError, match="--num-envs 3"):
        against_sb3.system(3)
