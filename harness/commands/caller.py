"""The Python process that has called a command by `rlbench.run` or `rlbench.predict`, where one did.

The command writes the folder of its sweep into a pipe, as soon as there is one and again when it is over, since the
folder may have been moved, and what it would otherwise say last on stderr. The caller reads until the pipe is closed,
and takes the last of each. It shows the figures itself, so the command prints no table. When the thread that waits for
the command ends, the kernel sends the command SIGTERM, which means what Ctrl-C means.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from rlbench.harness.processes.process import end_with_parent

END = b"\0"
"""Of each path and message in the pipe: none holds it."""
MESSAGE = b"!"
"""How a message begins; a path is absolute."""
_pipe: int | None = None


def begin(pid: int, pipe: int) -> None:
    """Notes the caller; from now on this process ends when that does.

    Args:
        pid: of the caller.
        pipe: descriptor of the pipe's end to write to; processes that this one starts do not inherit it.
    """
    global _pipe  # noqa: PLW0603  a process has one caller
    end_with_parent(pid, signal.SIGTERM)
    os.set_inheritable(pipe, False)  # noqa: FBT003  it takes no keyword
    _pipe = pipe


def is_there() -> bool:
    """Whether a Python process has called this command."""
    return _pipe is not None


def tell(sweep: Path) -> None:
    """Tells the caller where the sweep is; does nothing where there is none."""
    if _pipe is not None:
        _write(_pipe, os.fsencode(sweep.absolute()))


def hears(message: str) -> bool:
    """Tells the caller what is wrong; returns False where there is none: then it is for stderr."""
    if _pipe is not None:
        _write(_pipe, MESSAGE + message.replace("\0", "").encode(errors="backslashreplace"))
    return _pipe is not None


def _write(pipe: int, said: bytes) -> None:
    with suppress(BrokenPipeError):  # the caller has ended, and so will this process
        os.write(pipe, said + END)
