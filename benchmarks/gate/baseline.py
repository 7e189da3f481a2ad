"""The revision that this one is held against."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BASELINE = "43c4461cf4f3ebf6e3937576ef23a5a62611efd3"
"""Commit before which a loss is accepted. It moves on where one is made on purpose, in the change that makes it, so
that small losses of many changes add up here and do not pass one by one."""
ROOT = Path(__file__).parents[2]


@contextmanager
def baseline_tree(folder: Path) -> Iterator[Path]:
    """A work tree of `BASELINE` in a new folder."""
    git = ("git", "-C", str(ROOT), "worktree")
    subprocess.run([*git, "add", "--detach", "--quiet", str(folder), BASELINE], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)
