from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import process
from harness.process import StackDump
from tests.harness.runs import wait_until

SPEAKS = """
import sys, threading, time
from pathlib import Path
from harness.process import dump_stacks_on_signal

def sink(depth):
    if depth:
        return sink(depth - 1)
    arrived.append(depth) or forever.acquire()

arrived, forever = [], threading.Lock()
forever.acquire()
for _ in range(int(sys.argv[2])):
    threading.Thread(target=sink, args=(90,), daemon=True).start()
while len(arrived) < int(sys.argv[2]):
    time.sleep(0.01)
dump_stacks_on_signal(Path(sys.argv[1]))
print("ready", flush=True) or forever.acquire()
"""


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


@pytest.fixture
def speaker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that writes its stacks to `stacks.txt` when it is asked; of so many threads, each 90 calls deep."""
    words = [sys.executable, "-c", SPEAKS, str(tmp_path / "stacks.txt"), str(request.param)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        wait_until(lambda: {each.state for each in process._threads(running.pid).values()} == {"S"}, "all wait")
        yield running
        running.kill()


@pytest.mark.parametrize("speaker", [60], indirect=True)
def test_stacks_are_whole_when_they_are_over(speaker: subprocess.Popen[str], tmp_path: Path) -> None:
    """Thousands of lines are written one after the other; whenever one looks, they are over only after the last."""
    path = tmp_path / "stacks.txt"
    sizes = []
    for number in range(1, 4):
        dump = StackDump.ask(speaker.pid, path)
        while not dump.is_over:
            assert speaker.poll() is None
        text = path.read_text()
        sizes.append(len(text))
        assert text.endswith("in <module>\n")
        assert text.count("in sink") == number * 60 * 91
    assert sizes == [sizes[0], 2 * sizes[0], 3 * sizes[0]]


@pytest.mark.parametrize("speaker", [1], indirect=True)
def test_who_is_stopped_is_not_waited_for_until_it_goes_on(
    speaker: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process leaves nothing; the signal waits for it, and it answers as soon as it goes on."""
    path, clock = tmp_path / "stacks.txt", Clock()
    speaker.send_signal(signal.SIGSTOP)
    wait_until(lambda: process._threads(speaker.pid)[speaker.pid].state == "T", "it is stopped")
    with monkeypatch.context() as patched:
        patched.setattr(process, "time", clock)
        dump = StackDump.ask(speaker.pid, path)
        process.await_stacks([dump])
    assert (clock.now_s, path.stat().st_size) == (0, 0)
    speaker.send_signal(signal.SIGCONT)
    wait_until(lambda: dump.is_over, "it answers")
    assert path.read_text().endswith("in <module>\n")


@pytest.mark.parametrize("speaker", [1], indirect=True)
def test_who_has_ended_is_not_waited_for(
    speaker: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank's workers end with it, and leave no stack; neither one that waits for its parent nor one that is gone."""
    clock = Clock()
    monkeypatch.setattr(process, "time", clock)
    speaker.kill()
    os.waitid(os.P_PID, speaker.pid, os.WEXITED | os.WNOWAIT)
    zombie = StackDump.ask(speaker.pid, tmp_path / "stacks.txt")
    process.await_stacks([zombie])
    speaker.wait()
    process.await_stacks([zombie])
    assert clock.now_s == 0


@pytest.mark.parametrize(
    ("threads", "num_written", "is_over"),
    [
        ({7: ("S", process.USR1, 0)}, 0, False),  # it has not taken the signal
        ({7: ("S", 0, 0), 8: ("R", 0, process.USR1)}, 5, False),  # a thread writes
        ({7: ("S", 0, 0), 8: ("S", 0, 0)}, 5, True),  # it has written
        ({7: ("S", 0, 0), 9: ("S", 0, process.USR1)}, 5, True),  # a thread that never takes it
        ({7: ("S", 0, 0)}, 0, False),  # it has taken the signal, and its handler is about to run
        ({8: ("S", 0, 0)}, 0, True),  # it is gone
    ],
)
def test_stacks_are_over_when_the_handler_has_run(
    threads: dict[int, tuple[str, int, int]],
    num_written: int,
    is_over: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what the kernel says of the signal; whoever never answers is waited for `ANSWER_S`."""
    path, clock = tmp_path / "stacks.txt", Clock()
    path.write_bytes(b"before" + num_written * b".")
    monkeypatch.setattr(process, "_threads", lambda _: {n: process._Thread(*said) for n, said in threads.items()})
    monkeypatch.setattr(process, "time", clock)
    dump = StackDump(7, path, len(b"before"), frozenset({9}))
    assert dump.is_over == is_over
    process.await_stacks([dump])
    assert (clock.now_s < process.ANSWER_S) == is_over
    assert clock.now_s < process.ANSWER_S + 0.05
