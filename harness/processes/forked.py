"""Processes that are forked and go on in Python, without the start of an interpreter and its imports.

What is forked must have one thread: a lock that another one holds would never be freed. `is_forkable` says so.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

ARG_START, ARG_END = 48 - 3, 49 - 3
"""Fields of /proc/PID/stat by their numbers in proc(5), behind the first two: the process's number and its name."""


class Forked:
    """A child of this process, or one that it has adopted; what `subprocess.Popen` is of a program."""

    def __init__(self, pid: int, stdin: IO[bytes] | None = None) -> None:
        self.pid, self.stdin = pid, stdin
        self.returncode: int | None = None
        """Negative for a signal, as in `subprocess`; None while it lives."""
        self._end: int | None = None
        """Can be read when it has ended; there from the first wait on until then."""

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
                if self._end is not None:
                    os.close(self._end)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Blocks until it has ended. Raises subprocess.TimeoutExpired."""
        if self.poll() is None:
            if self._end is None:
                self._end = os.pidfd_open(self.pid)
            ended = select.poll()
            ended.register(self._end, select.POLLIN)
            ended.poll(None if timeout is None else 1000 * timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Kills it, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def fork(work: Callable[[], int]) -> Forked:
    """Does some work in a child, which ends with the exit code that it returns, or with 1 and a traceback.

    The child goes on in the middle of the caller's frames and never returns to them: nothing that they hold is closed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Forked(pid)
    code = 1
    try:
        code = work()
    except BaseException:  # noqa: BLE001  nobody is above this frame
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):  # whoever read our output is gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def is_forkable() -> bool:
    """Whether this process has one thread only, libraries' own ones included."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def close_others(*fds: int) -> None:
    """Closes all descriptors but the standard streams and these: what a program does not inherit either."""
    first = 3
    for fd in sorted(fds):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def set_command(words: Sequence[str]) -> None:
    """Has `ps` and /proc show these words as this process's command line, as far as there is room for them.

    They are written over the old ones: what is forked would be called like the process that it was forked from.
    """
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    fields = stat.rpartition(")")[2].split()  # the name, in brackets, may hold anything
    start, room = int(fields[ARG_START]), int(fields[ARG_END]) - int(fields[ARG_START]) - 1
    if start and room > 0:
        text = "\0".join(words).encode(errors="surrogateescape")[:room]
        ctypes.memset(start, 0, room)
        ctypes.memmove(start, text, len(text))
