"""A git revision of rlbench, or of a package with its `rlbench` command, in a work tree and virtual environment.

A work tree lasts as long as the gate; the environment is kept in the cache folder, by the commit that it was made of,
and used again. Nothing of the user's own work tree is touched. Blocks for git and pip, whose output is shown when they
fail.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from results.index import cache_folder

READY = "ready"
"""A file in an environment that was made to its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """What a side of a gate is made of."""

    name: str
    """As the user called it."""
    commit: str
    tree: Path
    """Its work tree."""
    environment: Path

    @property
    def rlbench(self) -> Path:
        """The command of this revision."""
        return self.environment / "bin" / "rlbench"

    @property
    def label(self) -> str:
        """`main (0123456789ab)`."""
        short = self.commit[:12]
        return self.name if short.startswith(self.name) else f"{self.name} ({short})"


def find_commit(name: str, repository: Path) -> str:
    """The commit that a name stands for. Raises ValueError when there is none, or no repository."""
    found = _run(
        ["git", "-C", str(repository), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    )
    if found.returncode:
        inside = _run(["git", "-C", str(repository), "rev-parse", "--git-dir"])
        if inside.returncode:
            raise ValueError(f"{name}: is neither a folder of runs, nor are we in a git repository")
        raise ValueError(f"{name}: neither a folder of runs nor a revision of the git repository here")
    return found.stdout.strip()


def has_changes(repository: Path) -> bool:
    """Whether the user's work tree differs from its commit."""
    return bool(_run(["git", "-C", str(repository), "status", "--porcelain", "--untracked-files=no"]).stdout.strip())


@contextmanager
def checked_out(name: str, commit: str, repository: Path, folder: Path) -> Iterator[Revision]:
    """The revision in a work tree in `folder`, and its environment; the work tree is gone afterwards.

    Raises ValueError when git or pip fail.
    """
    tree = folder / f"tree-{commit[:12]}"
    _must(["git", "-C", str(repository), "worktree", "add", "--detach", "--quiet", str(tree), commit], f"{name}: git")
    try:
        yield Revision(name=name, commit=commit, tree=tree, environment=_virtual_environment(name, commit, tree))
    finally:
        _run(["git", "-C", str(repository), "worktree", "remove", "--force", str(tree)])


def _virtual_environment(name: str, commit: str, tree: Path) -> Path:
    """The environment of a commit, made where there is none yet."""
    root = cache_folder() / "gate"
    made = root / f"{commit}-{sysconfig.get_platform()}-python{sysconfig.get_python_version()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(made.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise ValueError(f"{root}: cannot be made ({problem.strerror}); set XDG_CACHE_HOME to another folder") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another gate may be making the same; the kernel frees what a killed one held
        if not (made / READY).exists() or not (made / "bin" / "python").exists():
            shutil.rmtree(made, ignore_errors=True)  # its making was interrupted, or its Python is gone
            _make(made, name, tree)
    finally:
        os.close(lock)
    return made


def _make(made: Path, name: str, tree: Path) -> None:
    _must([sys.executable, "-m", "venv", str(made)], f"{name}: its virtual environment")
    pinned = tree / "constraints.txt"
    options = ["-c", str(pinned)] if pinned.exists() else []
    _must([str(made / "bin" / "python"), "-m", "pip", "install", "--quiet", *options, str(tree)], f"{name}: pip")
    if not (made / "bin" / "rlbench").exists():
        raise ValueError(f"{name}: installs no `rlbench` command")
    (made / READY).touch()


def environment() -> dict[str, str]:
    """Variables for what works on a revision: without those that would lead it to other code, or another index."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_"))}


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, check=False, env=environment(), capture_output=True, text=True, errors="replace")  # noqa: S603  ours
    except FileNotFoundError:
        raise ValueError(f"{command[0]}: not installed, and needed to measure revisions") from None


def _must(command: Sequence[str], what: str) -> None:
    done = _run(command)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        error = next((line for line in lines if line.lower().startswith(("error", "fatal"))), lines[-1])
        raise ValueError(f"{what}: {error}")
