"""A package and a file of somebody's, for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from rlbench.scenarios.gym import making
from tests.scenarios.gym.written import write_file, write_package


@pytest.fixture
def my_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of `my_package`, on the path of this process; nothing of it is left after the test."""
    monkeypatch.syspath_prepend(str(write_package(tmp_path)))
    yield tmp_path
    sys.modules.pop("my_package", None)
    gymnasium.registry.pop("Warehouse-v0", None)
    making.TRIALS.known.clear()


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of `mine.py`, in the working folder."""
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield write_file(tmp_path)
    sys.path[:] = before
