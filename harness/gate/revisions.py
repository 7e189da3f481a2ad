"""A git revision of rlbench, or of a package with its `rlbench` command, in a work tree and virtual environment.

A work tree lasts as long as the gate; the environment is kept in the cache folder, by the commit that it was made of,
and used again. Each is some 2 GB: whoever has made one removes all but the `KEPT` that were used last. Nothing of the
user's own work tree is touched. Blocks for git and pip, whose output is shown when they fail, and for another gate that
is making the same environment. A gate holds a shared lock on each that it uses, until it ends or is killed: whoever
makes or removes one has its lock alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness import environments
from harness.environments import READY, is_ready, must, open_lock, run
from results.index import cache_folder

KEPT = 5
"""Environments: of a base branch, and of a few of what is held against it."""


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
    found = run(
        ["git", "-C", str(repository), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    )
    if found.returncode:
        inside = run(["git", "-C", str(repository), "rev-parse", "--git-dir"])
        if inside.returncode:
            raise ValueError(f"{name}: is neither a folder of runs, nor are we in a git repository")
        raise ValueError(f"{name}: neither a folder of runs nor a revision of the git repository here")
    return found.stdout.strip()


def has_changes(repository: Path) -> bool:
    """Whether the user's work tree differs from its commit."""
    return bool(run(["git", "-C", str(repository), "status", "--porcelain", "--untracked-files=no"]).stdout.strip())


@contextmanager
def checked_out(name: str, commit: str, repository: Path, folder: Path) -> Iterator[Revision]:
    """The revision in a work tree in `folder`, and its environment; the work tree is gone afterwards.

    Raises ValueError when git or pip fail.
    """
    tree = folder / f"tree-{commit[:12]}"
    must(["git", "-C", str(repository), "worktree", "add", "--detach", "--quiet", str(tree), commit], f"{name}: git")
    try:
        with _virtual_environment(name, commit, tree) as made:
            yield Revision(name=name, commit=commit, tree=tree, environment=made)
    finally:
        run(["git", "-C", str(repository), "worktree", "remove", "--force", str(tree)])


@contextmanager
def _virtual_environment(name: str, commit: str, tree: Path) -> Iterator[Path]:
    """The environment of a commit, made where there is none yet; nobody removes it meanwhile."""
    root = cache_folder() / "gate"
    made = root / f"{commit}-{sysconfig.get_platform()}-python{sysconfig.get_python_version()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = open_lock(made)
    except OSError as problem:
        raise ValueError(f"{root}: cannot be made ({problem.strerror}); set XDG_CACHE_HOME to another folder") from None
    try:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)  # the kernel frees what a killed one held
            if is_ready(made):
                break
            fcntl.flock(lock, fcntl.LOCK_EX)  # another gate may have made the same meanwhile
            if not is_ready(made):
                shutil.rmtree(made, ignore_errors=True)  # its making was interrupted, or its Python is gone
                _make(made, name, tree)
        (made / READY).touch()
        remove_all_but(KEPT, root)
        yield made
    finally:
        os.close(lock)


def remove_all_but(num_kept: int, root: Path) -> None:
    """Removes environments that were not made to their end, and of the others all but those used last; none in use."""
    there = [made for made in root.iterdir() if made.is_dir()]
    ready = sorted(filter(is_ready, there), key=lambda made: (made / READY).stat().st_mtime, reverse=True)
    for made in {*there} - {*ready[:num_kept]}:
        lock = open_lock(made)
        with suppress(OSError):  # somebody uses it, or makes it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (made / READY).unlink(missing_ok=True)  # first: what is left if this is interrupted is of no use
            shutil.rmtree(made)
        os.close(lock)


def _make(made: Path, name: str, tree: Path) -> None:
    environments.make(made, name)
    pinned = tree / "constraints.txt"
    environments.install(made, [*(["-c", str(pinned)] if pinned.exists() else []), str(tree)], name)
    if not (made / "bin" / "rlbench").exists():
        raise ValueError(f"{name}: installs no `rlbench` command")
    (made / READY).touch()
