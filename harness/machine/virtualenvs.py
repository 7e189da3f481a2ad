"""Virtual environments in the cache folder: made once, kept, and locked by processes that make, use or remove them.

What blocks: git and pip, whose output is shown only when they fail, and the lock of an environment that another process
is making. The kernel frees the locks of a killed process. An environment whose making was interrupted has no `READY`
file and is made again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rlbench.harness.processes import removal
from rlbench.harness.processes.removal import OTHERS_WRITE, inside, is_ours_alone, opened_folder, remove_folder

READY = "ready"
"""A file in an environment that is complete; its modification time is that of the last use."""


MARKS = (READY, "pyvenv.cfg")
"""A virtual environment has at least one of these files."""
BEGUN = {"bin", "include", "lib", "lib64", "conda-meta"}
"""An environment whose making or removal was interrupted may have only these."""


def open_lock(made: Path) -> int:
    """Opens an environment's lock, a file beside it; it is never removed, since another process may hold it by then."""
    return removal.open_lock(made.with_name(f"{made.name}.lock"))


def python_in(made: Path) -> Path:
    """The interpreter of an environment."""
    return made / "bin" / "python"


def is_ready(made: Path) -> bool:
    """Whether an environment is complete and its Python is still there."""
    return (made / READY).exists() and python_in(made).exists()


def mark_ready(made: Path) -> None:
    """Marks an environment as complete and as used now."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(made / READY, flags, 0o644)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def remove(made: Path) -> None:
    """Removes an environment, or what is left of one; does nothing if there is none.

    Call it with its lock held. Raises ValueError, and removes nothing, if something else has its name; also raises
    ValueError if the environment cannot be removed.
    """
    try:
        with opened_folder(made) as descriptor:
            if not is_ours_alone(descriptor, OTHERS_WRITE):
                raise ValueError(f"{made}: belongs to others, or others may write there; remove it yourself")
            if not _is_environment(inside(descriptor)):
                raise ValueError(f"{made}: is no virtual environment; move it elsewhere")
            (inside(descriptor) / READY).unlink(missing_ok=True)  # first, so that a kill leaves none that looks ready
            remove_folder(made, descriptor)
    except FileNotFoundError:
        return
    except OSError as problem:
        what = "is no folder, or a link" if made.is_symlink() or not made.is_dir() else problem.strerror
        raise ValueError(f"{made}: cannot be removed ({what}); remove it yourself") from None


def _is_environment(folder: Path) -> bool:
    there = {path.name for path in folder.iterdir()}
    marked = any((folder / mark).is_file() and not (folder / mark).is_symlink() for mark in MARKS)
    return marked or there <= BEGUN or (folder / "conda-meta").is_dir()


def make(made: Path, what: str) -> None:
    """Makes an environment of this Python, with nothing but pip. Raises ValueError."""
    must([sys.executable, "-m", "venv", str(made)], f"{what}: its virtual environment")


def install(made: Path, words: Sequence[str], what: str) -> None:
    """Runs the environment's `pip install` with these words. Raises ValueError with pip's own error."""
    must([str(python_in(made)), "-m", "pip", "install", "--quiet", *words], f"{what}: pip")


def variables() -> dict[str, str]:
    """Variables for commands on other code: no PYTHON* and GIT_*, which could lead them here or to another index."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_"))}


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. Raises ValueError if it is not installed."""
    try:
        return subprocess.run(  # noqa: S603  ours
            command, check=False, env=variables(), capture_output=True, encoding="utf-8", errors="replace"
        )
    except FileNotFoundError:
        raise ValueError(f"{command[0]}: is not installed, and is needed here") from None


def must(command: Sequence[str], what: str) -> None:
    """Runs a command that must succeed. Raises ValueError with the output line that says why it failed."""
    done = run(command)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        error = next((line for line in lines if line.lower().startswith(("error", "fatal"))), lines[-1])
        raise ValueError(f"{what}: {error}")
