"""Forked processes that go on in Python, so they need not start an interpreter and import everything again.

A process may fork only while it has one thread: in the child, a lock that another thread held would never be freed.
`is_forkable` checks this.
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
"""Indices into the fields of /proc/PID/stat, numbered as in proc(5), after the first two (pid and name) are cut off."""


class Forked:
    """A child that this process has forked or adopted; the counterpart of `subprocess.Popen` for forked processes."""

    def __init__(self, pid: int, stdin: IO[bytes] | None = None) -> None:
        self.pid, self.stdin = pid, stdin
        self.returncode: int | None = None
        """Negative for a signal, as in `subprocess`; None while it lives."""
        self._end: int | None = None
        """A pidfd, readable once the process has ended; open from the first `wait` until then."""

    def poll(self) -> int | None:
        """The exit code if the process has ended, else None."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
                if self._end is not None:
                    os.close(self._end)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Blocks until the process has ended; returns its exit code. Raises subprocess.TimeoutExpired."""
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
        """Kills the process if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def fork(work: Callable[[], int]) -> Forked:
    """Runs `work` in a child, which exits with the code that `work` returns, or prints a traceback and exits with 1.

    The child runs on top of the caller's frames and never returns to them, so nothing that they hold is closed in it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Forked(pid)
    code = 1
    try:
        code = work()
    except BaseException:  # noqa: BLE001  no frame above this one may see it
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):  # the reader of our output is gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def is_forkable() -> bool:
    """Whether this process has only one thread, counting the threads that libraries have started."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def close_others(*fds: int) -> None:
    """Closes all descriptors except the standard streams and `fds`, just as a new program would not inherit them."""
    first = 3
    for fd in sorted(fds):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def set_command(words: Sequence[str]) -> None:
    """Makes `ps` and /proc show these words as this process's command line, cut to the room that there is.

    They overwrite the old command line, which a forked process shares with the process that it was forked from.
    """
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    fields = stat.rpartition(")")[2].split()  # the name, in brackets, may hold anything
    start, room = int(fields[ARG_START]), int(fields[ARG_END]) - int(fields[ARG_START]) - 1
    if start and room > 0:
        text = "\0".join(words).encode(errors="surrogateescape")[:room]
        ctypes.memset(start, 0, room)
        ctypes.memmove(start, text, len(text))
