"""Virtual environments in the cache folder: made once, kept, and locked by whoever makes, uses or removes them.

What blocks: git and pip, whose output is shown when they fail, and the lock of an environment that another process
makes. The kernel frees what a killed process held; an environment whose making was interrupted has no `READY` and is
made anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

READY = "ready"
"""A file in an environment that was made to its end; its time is that of the last use."""


def open_lock(made: Path) -> int:
    """The lock of an environment, a file beside it that is never removed: it could be another's by then."""
    return os.open(made.with_name(f"{made.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def python_in(made: Path) -> Path:
    """The interpreter of an environment."""
    return made / "bin" / "python"


def is_ready(made: Path) -> bool:
    """Whether an environment was made to its end, and its Python is still there."""
    return (made / READY).exists() and python_in(made).exists()


def make(made: Path, what: str) -> None:
    """Makes an environment of this Python, with pip alone. Raises ValueError."""
    must([sys.executable, "-m", "venv", str(made)], f"{what}: its virtual environment")


def install(made: Path, words: Sequence[str], what: str) -> None:
    """Has its pip install something. Raises ValueError with pip's own error."""
    must([str(python_in(made)), "-m", "pip", "install", "--quiet", *words], f"{what}: pip")


def variables() -> dict[str, str]:
    """Variables for what works on other code than this: without those that would lead it here, or to another index."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_"))}


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. Raises ValueError where it is not there."""
    try:
        return subprocess.run(command, check=False, env=variables(), capture_output=True, text=True, errors="replace")  # noqa: S603  ours
    except FileNotFoundError:
        raise ValueError(f"{command[0]}: is not installed, and is needed here") from None


def must(command: Sequence[str], what: str) -> None:
    """Runs a command that must succeed. Raises ValueError with the line that says why it has not."""
    done = run(command)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        error = next((line for line in lines if line.lower().startswith(("error", "fatal"))), lines[-1])
        raise ValueError(f"{what}: {error}")
