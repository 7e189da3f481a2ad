"""The Python process that has called a command by `rlbench.run` or `rlbench.predict`, where one did.

The command writes the folder of its sweep into a pipe, as soon as there is one and again when it is over, since the
folder may have been moved; the caller reads until the pipe is closed, and takes the last. It shows the figures itself,
so the command prints no table. When the thread that waits for the command ends, the kernel sends the command SIGTERM,
which means what Ctrl-C means.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from rlbench.harness.processes.process import end_with_parent

END = b"\0"
"""Of each path in the pipe: no path holds it."""
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
        with suppress(BrokenPipeError):  # it has ended, and so will this process
            os.write(_pipe, os.fsencode(sweep.absolute()) + END)
