"""A git revision of rlbench, or of a package that runs in it, in its own work tree and virtual environment.

The work tree lasts as long as the gate. The environment has the revision itself; all else is imported from the
environment that this process runs in, so that both sides of a gate have the same, and what only conda installs is
there too. What a revision asks for in another version, pip installs beside it. An environment is kept in the cache
folder, by its commit and by what this process's own has, and used again; every gate removes all but the `KEPT` used
last. The user's own work tree is not touched. What blocks: git and pip, whose output is shown when they fail, and
another gate that is making the same environment. A gate holds a shared lock on each environment that it uses, until it
ends or is killed; making or removing one takes an exclusive lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rlbench.harness.machine import virtualenvs
from rlbench.harness.machine.virtualenvs import READY, is_ready, must, open_lock, python_in, run
from rlbench.results.reading.untrusted import visible
from rlbench.results.records.index import cache_folder

KEPT = 50
"""Environments to keep, of some 40 MB each: those of a search among commits, and of what is compared often."""
NAME = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})-[\w.-]+-python\d[\w.]*(?:-[0-9a-f]{8})?")
"""Name of an environment: its commit, platform, Python version, and hash of what it imports from here."""
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Git without the user's hooks and file-system monitor, for our work trees."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltRevision:
    """One side of a gate."""

    name: str
    """The user's name for it."""
    commit: str
    tree: Path
    """Its work tree."""
    environment: Path

    @property
    def rlbench(self) -> list[str]:
        """Words of its command: its own, or that of this process's environment for code that brings none."""
        own = self.environment / "bin" / "rlbench"
        return [str(own)] if own.exists() else [str(python_in(self.environment)), "-m", "rlbench"]

    @property
    def label(self) -> str:
        """`main (0123456789ab)`; only the latter for a name that is its hash, or begins it."""
        short = self.commit[:12]
        return short if self.commit.startswith(self.name) else f"{self.name} ({short})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """A commit of a history."""

    name: str
    """Its hash."""
    subject: str

    @property
    def short(self) -> str:
        """The beginning of its hash."""
        return self.name[:12]

    @property
    def line(self) -> str:
        """Hash and subject."""
        return f"{self.short} {self.subject}"


def commits_between(good: str, bad: str, repository: Path) -> list[Commit]:
    """The commits after `good` up to `bad`, the oldest first, along first parents.

    Raises ValueError unless `good` is an ancestor of `bad`.
    """
    if run([*GIT, "-C", str(repository), "merge-base", "--is-ancestor", good, bad]).returncode:
        raise ValueError(f"--baseline {good[:12]}: is no ancestor of {bad[:12]}, so there is nothing between them")
    wanted = ("log", "--reverse", "--first-parent", "--format=%H %s", f"{good}..{bad}")
    lines = run([*GIT, "-C", str(repository), *wanted]).stdout.splitlines()
    split = (line.partition(" ") for line in lines)
    return [Commit(name=name, subject=visible(subject)) for name, _, subject in split]


def find_commit(name: str, repository: Path) -> str:
    """The commit that a name stands for. Raises ValueError when there is none, or no repository."""
    found = run(
        [*GIT, "-C", str(repository), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    )
    if found.returncode:
        inside = run([*GIT, "-C", str(repository), "rev-parse", "--git-dir"])
        if inside.returncode:
            raise ValueError(f"{name}: is neither a folder of runs, nor are we in a git repository")
        raise ValueError(f"{name}: neither a folder of runs nor a revision of the git repository here")
    return found.stdout.strip()


def has_changes(repository: Path) -> bool:
    """Whether the user's work tree differs from its commit."""
    return bool(run([*GIT, "-C", str(repository), "status", "--porcelain", "--untracked-files=no"]).stdout.strip())


@contextmanager
def checked_out(name: str, commit: str, repository: Path, folder: Path) -> Iterator[BuiltRevision]:
    """Checks a revision out into `folder` and makes its environment; removes the work tree afterwards.

    Raises ValueError when git or pip fails.
    """
    tree = folder / f"tree-{commit[:12]}"
    must([*GIT, "-C", str(repository), "worktree", "add", "--detach", "--quiet", str(tree), commit], f"{name}: git")
    try:
        with _virtual_environment(name, commit, tree) as made:
            yield BuiltRevision(name=name, commit=commit, tree=tree, environment=made)
    finally:
        run([*GIT, "-C", str(repository), "worktree", "remove", "--force", str(tree)])


@contextmanager
def _virtual_environment(name: str, commit: str, tree: Path) -> Iterator[Path]:
    """The environment of a commit, made if there is none yet; nobody can remove it meanwhile."""
    root = cache_folder() / "gate"
    made = root / f"{commit}-{sysconfig.get_platform()}-python{sysconfig.get_python_version()}-{_hash_of_here()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = open_lock(made)
    except OSError as problem:
        raise ValueError(f"{root}: cannot be made ({problem.strerror}); set XDG_CACHE_HOME to another folder") from None
    try:
        if made.is_symlink():
            raise ValueError(f"{made}: is a link, and no environment that rlbench has made; remove it yourself")
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)  # the kernel frees the lock of a killed gate
            if is_ready(made):
                break
            fcntl.flock(lock, fcntl.LOCK_EX)  # another gate may have made the same meanwhile
            if not is_ready(made):
                virtualenvs.remove(made)  # its making was interrupted, or its Python is gone
                _make(made, name, tree)
        virtualenvs.mark_ready(made)
        remove_all_but(KEPT, root)
        yield made
    finally:
        os.close(lock)


def remove_all_but(num_kept: int, root: Path) -> None:
    """Removes unfinished environments, and the others except the `num_kept` used last; none that is in use.

    Leaves alone what has no name as `_virtual_environment` gives it, and what is no virtual environment.
    """
    named = [made for made in root.iterdir() if NAME.fullmatch(made.name)]
    there = [made for made in named if made.is_dir() and not made.is_symlink()]
    ready = sorted(filter(is_ready, there), key=lambda made: (made / READY).stat().st_mtime, reverse=True)
    for made in {*there} - {*ready[:num_kept]}:
        with suppress(OSError, ValueError):  # it is being used or made, or is not ours
            lock = open_lock(made)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                virtualenvs.remove(made)
            finally:
                os.close(lock)


def _make(made: Path, name: str, tree: Path) -> None:
    virtualenvs.make(made, name)
    (site,) = made.glob("lib/python*/site-packages")
    also = "; ".join(f"site.addsitedir({folder!r})" for folder in _folders_here())
    (site / "rlbench_gate.pth").write_text(f"import site; {also}\n", encoding="utf-8")  # after what is installed below
    pinned = tree / "constraints.txt"
    virtualenvs.install(made, [*(["-c", str(pinned)] if pinned.exists() else []), str(tree)], name)
    virtualenvs.mark_ready(made)


def _folders_here() -> list[str]:
    """Where this process imports installed packages from."""
    return [folder for folder in sys.path if Path(folder).name in {"site-packages", "dist-packages"}]


def _hash_of_here() -> str:
    """Changes when anything is installed or removed in the environment of this process."""
    folders = _folders_here()
    there = sorted(f"{one.metadata['Name']}=={one.version}" for one in metadata.distributions(path=folders))
    return hashlib.sha256("\n".join([*folders, *there]).encode()).hexdigest()[:8]
