from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rlbench.harness.processes import process
from rlbench.harness.processes.process import StackDump
from rlbench.harness.run import stacks
from tests.harness.runs import PATIENCE_S, wait_until

THREADS = 60
DEPTH = 90

SPEAKS = f"""
import sys, threading, time
from pathlib import Path
from rlbench.harness.processes.process import dump_stacks_on_signal

def sink(depth):
    if depth:
        return sink(depth - 1)
    arrived.append(depth) or forever.acquire()

arrived, forever = [], threading.Lock()
forever.acquire()
for _ in range({THREADS}):
    threading.Thread(target=sink, args=({DEPTH},), daemon=True).start()
while len(arrived) < {THREADS}:
    time.sleep(0.01)
dump_stacks_on_signal(Path(sys.argv[1]))
print("ready", flush=True) or forever.acquire()
"""
"""Python threads that wait, deep in calls."""

FOREIGN = """
import ctypes, sys
from pathlib import Path
from rlbench.harness.processes.process import dump_stacks_on_signal

libc, zeros, ones = ctypes.CDLL(None), (ctypes.c_int * 16)(), (ctypes.c_int * 16)()
libc.pthread_spin_init(ones, 0), libc.pthread_spin_lock(ones)
for waits, on in ((libc.sem_wait, zeros), (libc.pthread_spin_lock, ones)):
    assert not libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, waits, on)
dump_stacks_on_signal(Path(sys.argv[1]))
print("ready", flush=True) or libc.sem_wait(zeros)
"""
"""Threads without Python frames: one that sleeps, and one that spins, until somebody unlocks what nobody does."""

BUSY = """
import sys, threading, time
from pathlib import Path
from rlbench.harness.processes.process import dump_stacks_on_signal

def begin_threads():
    while True:
        thread = threading.Thread(target=time.sleep, args=(0.0005,))
        thread.start()
        thread.join()

for _ in range(8):
    threading.Thread(target=begin_threads, daemon=True).start()
dump_stacks_on_signal(Path(sys.argv[1]))
print("ready", flush=True) or threading.Event().wait()
"""
"""Threads that begin and end all the time."""


class Clock:
    """Stands in for `time`: it moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Moves it."""
        self.now_s += seconds


@contextmanager
def running(program: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a program, and writes its stacks to `path` when it is asked."""
    words = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as one:
        try:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
            yield one
        finally:
            one.kill()


@pytest.fixture
def speaker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """One that writes to `stacks.txt`."""
    with running(getattr(request, "param", SPEAKS), tmp_path / "stacks.txt") as one:
        yield one


def stop(speaker: subprocess.Popen[str]) -> None:
    """Stops it, and waits for that."""
    speaker.send_signal(signal.SIGSTOP)
    wait_until(lambda: psutil.Process(speaker.pid).status() == psutil.STATUS_STOPPED, "it is stopped")


def finish(dump: StackDump, speaker: subprocess.Popen[str]) -> None:
    """Has all threads asked, without a pause in which something that is not over could end unseen."""
    ends_at = time.monotonic() + PATIENCE_S
    while not dump.is_over():
        assert speaker.poll() is None
        assert time.monotonic() < ends_at


def test_stacks_are_whole_when_they_are_over(speaker: subprocess.Popen[str], tmp_path: Path) -> None:
    """Thousands of lines are written one after the other; whenever one looks, they are over only after the last."""
    path = tmp_path / "stacks.txt"
    sizes = []
    for number in range(1, 4):
        finish(StackDump(speaker.pid, path), speaker)
        text = path.read_text()
        sizes.append(len(text))
        assert text.endswith("in _bootstrap\n")
        assert text.count("in sink") == number * THREADS * (DEPTH + 1)
        assert text.count("(most recent call first):\n") == number * (THREADS + 1)
        assert text.split("in <module>\n")[0].count("(most recent") == 1  # the main thread is the first
    assert sizes == [sizes[0], 2 * sizes[0], 3 * sizes[0]]


@pytest.mark.parametrize("speaker", [FOREIGN], indirect=True)
def test_threads_without_python_frames_are_asked_too_and_write_nothing(
    speaker: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulator's threads may sleep or compute; neither keeps the others from being asked, or the asker."""
    path, libc = tmp_path / "stacks.txt", process._libc
    asked = list[int]()
    with monkeypatch.context() as patched:
        patched.setattr(process, "_libc", SimpleNamespace(syscall=lambda *words: asked.append(libc.syscall(*words))))
        finish(StackDump(speaker.pid, path), speaker)
    text = path.read_text()
    assert asked == [0, 0, 0]
    assert text.endswith("in <module>\n")
    assert text.count("\n") == 2


@pytest.mark.parametrize("speaker", [BUSY], indirect=True)
def test_threads_may_begin_and_end_meanwhile(speaker: subprocess.Popen[str], tmp_path: Path) -> None:
    """As when a stopped process goes on: nobody reads frames of others, that change."""
    path = tmp_path / "stacks.txt"
    line = r"( *File .+, line .+ in .+| *<no Python frame>)\n"  # of a thread that has just begun, or is about to end
    whole = re.compile(rf"(Stack \(most recent call first\):\n{line}({line})*)+")
    for _ in range(20):
        num_bytes = path.stat().st_size
        stop(speaker)
        dump = StackDump(speaker.pid, path)
        speaker.send_signal(signal.SIGCONT)
        finish(dump, speaker)
        assert whole.fullmatch(path.read_text()[num_bytes:])
    # A thread that begins another blocks all signals meanwhile, and may lose its core then.
    assert path.read_text().count("in begin_threads") > 20 * 8 / 2


def test_who_is_stopped_is_not_waited_for_until_it_goes_on(
    speaker: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process leaves nothing; the signal waits for it, and it answers as soon as it goes on."""
    path, clock = tmp_path / "stacks.txt", Clock()
    stop(speaker)
    with monkeypatch.context() as patched:
        patched.setattr(process, "time", clock)
        dump = StackDump(speaker.pid, path)
        process.await_stacks([dump])
    assert (clock.now_s, path.stat().st_size) == (0, 0)
    speaker.send_signal(signal.SIGCONT)
    finish(dump, speaker)
    assert path.read_text().count("in sink") == THREADS * (DEPTH + 1)


def test_only_who_is_asked_is_woken(tmp_path: Path) -> None:
    """A stopped process that has no label stays as it is, and is told of."""
    asked, other = tmp_path / "stacks-rank1.txt", tmp_path / "stacks-rank2.txt"
    with running(FOREIGN, asked) as first, running(FOREIGN, other) as second:
        stop(first)
        stop(second)
        told = stacks.leave_stacks(tmp_path, {first.pid: "rank1"})
        assert psutil.Process(second.pid).status() == psutil.STATUS_STOPPED
        assert psutil.Process(first.pid).status() != psutil.STATUS_STOPPED
    assert (len(told), "rank1" in told) == (2, True)
    assert asked.read_text().endswith("in <module>\n")
    assert not other.stat().st_size


def test_who_has_ended_is_not_waited_for(
    speaker: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank's workers end with it, and leave no stack; neither one that waits for its parent nor one that is gone."""
    clock = Clock()
    monkeypatch.setattr(process, "time", clock)
    speaker.kill()
    os.waitid(os.P_PID, speaker.pid, os.WEXITED | os.WNOWAIT)
    zombie = StackDump(speaker.pid, tmp_path / "stacks.txt")
    process.await_stacks([zombie])
    speaker.wait()
    process.await_stacks([zombie])
    assert clock.now_s == 0


def pretend(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[int, int], process._Thread | None], ask: Callable[[int], None]
) -> Clock:
    """Has process 7 four threads, 7 and 11 to 13, and asks nobody; returns the clock."""
    clock = Clock()

    def call(_: int, pid: int, number: int, which: int) -> None:
        assert (pid, which) == (7, signal.SIGUSR1)
        ask(number)

    monkeypatch.setattr(process, "_numbers", lambda _: [7, 11, 12, 13])
    monkeypatch.setattr(process, "_look", look)
    monkeypatch.setattr(process, "_libc", SimpleNamespace(syscall=call))
    monkeypatch.setattr(process, "time", clock)
    return clock


@pytest.mark.parametrize(("hears_after", "in_turn"), [(0, [7, 11, 12, 13]), (3, [7, 12, 13, 11])])
def test_who_blocks_signals_for_a_moment_is_asked_last(
    hears_after: int, in_turn: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that begins another does, say; nobody waits for it meanwhile."""
    asked = list[int]()

    def look(_: int, number: int) -> process._Thread:
        is_deaf = number == 11 and len(asked) < hears_after
        return process._Thread("S", is_exiting=False, is_asked=False, is_deaf=is_deaf)

    clock = pretend(monkeypatch, look, asked.append)
    process.await_stacks([StackDump(7, tmp_path / "stacks.txt")])
    assert asked == in_turn
    assert clock.now_s < process.LATE_S


@pytest.mark.parametrize(
    ("said", "num_written", "waits_s"),
    [
        (("S", True, False), 0, process.ANSWER_S),  # it has not taken the signal: it has no core
        (("D", True, False), 0, process.LATE_S),  # it waits for a driver
        (("R", False, True), 0, process.ANSWER_S),  # its handler runs
        (("D", False, True), 5, process.ANSWER_S),  # so it does, and has written some of it to a slow disk
        (("R", False, False), 5, 0),  # it has written all
        (("S", False, False), 0, 0),  # it sleeps again, and has no Python frames
        (("R", False, False), 0, process.LATE_S),  # so it may have none, or its handler is about to run
        (("D", False, False), 0, process.LATE_S),
        (None, 0, 0),  # it is gone
    ],
)
def test_stacks_of_a_thread_are_over_when_its_handler_has_run(
    said: tuple[str, bool, bool] | None,
    num_written: int,
    waits_s: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what the kernel says of it. Who never takes signals is not asked, and who is late keeps no other from it."""
    path, asked = tmp_path / "stacks.txt", list[int]()
    path.write_bytes(b"before")

    def ask(number: int) -> None:
        asked.append(number)
        path.write_bytes(path.read_bytes() + (num_written if number == 12 else 1) * b".")

    def look(_: int, number: int) -> process._Thread | None:
        """The main thread and the last answer; another never takes signals."""
        now = said if number == 12 and 12 in asked else ("S", False, number == 11)
        return now and process._Thread(now[0], is_exiting=False, is_asked=now[1], is_deaf=now[2])

    clock = pretend(monkeypatch, look, ask)
    process.await_stacks([StackDump(7, path)])
    if waits_s == process.ANSWER_S:
        assert asked == [7, 12]
        assert process.ANSWER_S <= clock.now_s < process.ANSWER_S + 0.01
    else:  # the deaf one is looked at for a while
        assert asked == [7, 12, 13]
        assert waits_s + process.LATE_S <= clock.now_s < waits_s + process.LATE_S + 0.03
