"""Virtual environments in a moment: the first is made as ever, the others are copies of it as it was at first."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlbench.harness.machine import virtualenvs


@contextmanager
def copied_environments(folder: Path) -> Iterator[list[Path]]:
    """Replaces `virtualenvs.make` in this process; yields the environments that were made. `folder` has the first."""
    made: list[Path] = []
    make, empty = virtualenvs.make, folder / "empty"

    def make_or_copy(path: Path, what: str) -> None:
        if empty.exists():
            shutil.copytree(empty, path, symlinks=True, copy_function=os.link)  # pip replaces files, it changes none
        else:
            make(path, what)
            shutil.copytree(path, empty, symlinks=True)
        made.append(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(virtualenvs, "make", make_or_copy)
        yield made
