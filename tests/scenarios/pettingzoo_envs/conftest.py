"""A file of somebody's, for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbench.scenarios.pettingzoo_envs import making
from tests.scenarios.pettingzoo_envs.written import write_file


@pytest.fixture
def game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of `game.py`, in the working folder; nothing of it is left after the test."""
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield write_file(tmp_path)
    sys.path[:] = before
    making.TRIALS.known.clear()
