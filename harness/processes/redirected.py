"""What libraries print in this process, at whatever level, goes to files for a while; what we say does not.

Simulators write their logs to descriptors 1 and 2 from C and C++, so the descriptors themselves lead to the files
meanwhile, and Python's streams too. Call it in the main thread, once at a time. Nothing blocks. A process that such a
library ends leaves what was printed until then.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO

_told: list[TextIO] = []
"""Where the user is told something meanwhile."""


def say(line: str) -> None:
    """Prints a line on stderr, or where that was led before `output_to`."""
    print(line, file=_told[-1] if _told else sys.stderr, flush=True)


@contextmanager
def output_to(out: Path, err: Path) -> Iterator[None]:
    """What this process prints goes to two new files, each of which stays if anything was printed there.

    They replace what had these names, and are never written through a link. Where they cannot be made, it goes nowhere.
    """
    with ExitStack() as stack:
        if not _told:
            stack.enter_context(own_stderr())
        _flush()
        for path, number, redirected in ((out, 1, redirect_stdout), (err, 2, redirect_stderr)):
            stack.callback(_remove_empty, path)
            target = _new(path)
            stack.callback(os.close, target)
            stack.callback(_lead_back, number, os.dup(number))
            os.dup2(target, number)
            printed = stack.enter_context(
                open(target, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)
            )
            stack.enter_context(redirected(printed))
        stack.callback(_flush)
        yield


@contextmanager
def own_stderr() -> Iterator[TextIO]:
    """The user's stderr, wherever `output_to` leads descriptors; `say` prints there meanwhile."""
    with ExitStack() as stack:
        told = sys.stderr
        if told is sys.__stderr__:  # else somebody has put another stream in its place, which stays as it is
            told = stack.enter_context(os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace"))
        _told.append(told)
        stack.callback(_told.pop)
        yield told


def _new(path: Path) -> int:
    with suppress(OSError):
        path.unlink(missing_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _remove_empty(path: Path) -> None:
    with suppress(OSError):
        if path.lstat().st_size == 0:
            path.unlink()


def _lead_back(number: int, before: int) -> None:
    os.dup2(before, number)
    os.close(before)


def _flush() -> None:
    """Writes what Python and C hold back, where it is to go."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    ctypes.CDLL(None).fflush(None)
