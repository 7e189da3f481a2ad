from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from rlbench.harness.processes.forked import Forked, is_forkable

PROGRAM = "from rlbench.harness.processes.forked import *; import os, sys, time; "
"""Forks in a process of its own: this one may have threads."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """What a program has done."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + code], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("work", "code"),
    [("lambda: 0", 0), ("lambda: 7", 7), ("lambda: 1 / 0", 1), ("lambda: os.kill(os.getpid(), 9)", -9)],
)
def test_the_exit_code_of_what_is_forked(work: str, code: int) -> None:
    """It is what the work returns, 1 with a traceback for what it raises, and the signal that killed it."""
    ended = run(f"print(fork({work}).wait())")
    assert ended.stdout == f"{code}\n"
    assert ("ZeroDivisionError" in ended.stderr) == (code == 1)


def test_nothing_of_the_caller_happens_twice() -> None:
    """What was printed before is printed once, and what stands after the fork is done by the parent alone."""
    ended = run("print('before')\ntry:\n    fork(lambda: print('inside') or 0).wait()\nfinally:\n    print('after')")
    assert ended.stdout == "before\ninside\nafter\n"


def test_the_wait_for_a_child_has_an_end() -> None:
    """`wait` raises when the time is over, `poll` says nothing until it has ended, `kill` ends it, also twice."""
    child = subprocess.Popen(["sleep", "1000"])
    forked = Forked(child.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        forked.wait(0.01)
    assert forked.poll() is None
    before = len(list(Path("/proc/self/fd").iterdir()))
    forked.kill()
    assert forked.wait() == -9
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1
    forked.kill()
    child.wait()  # it was waited for already


def test_a_process_with_threads_is_not_forkable() -> None:
    """A thread of Python or of a library: forked without it, its locks would stay locked."""
    assert run("print(is_forkable())").stdout == "True\n"
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert not is_forkable()
    done.set()
    thread.join()


def test_other_descriptors_are_closed() -> None:
    """But for the standard streams and those that are named."""
    said = run(
        "kept, other = os.open('/dev/null', 0), os.open('/dev/null', 0); close_others(kept); "
        "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) <= kept))"
    )
    assert said.stdout == "[0, 1, 2, 3]\n"


def test_the_command_line_that_is_shown() -> None:
    """It is what was set, cut where there is no room; the environment behind it stays."""
    code = PROGRAM + "set_command(sys.argv[1:3]); print(flush=True); time.sleep(1000)"
    with subprocess.Popen(
        [sys.executable, "-c", code, "rlbench.harness.launch.rank", "3", "-" * 9],
        stdout=subprocess.PIPE,
        env={**os.environ, "MARK": "x"},
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        shown = psutil.Process(child.pid)
        assert [word for word in shown.cmdline() if word] == ["rlbench.harness.launch.rank", "3"]
        assert shown.environ()["MARK"] == "x"
        child.kill()
    assert run("set_command(['y' * 100000]); print(len(open('/proc/self/cmdline').read()) < 1000)").stdout == "True\n"
