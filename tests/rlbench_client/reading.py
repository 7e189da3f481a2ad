"""What the files of a folder of counters say, as rlbench reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.systems.external.counts import Change, CounterFiles
from rlbench_client.counters import FOLDER_VARIABLE


@pytest.fixture
def counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which this process and its children count."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def read(folder: Path) -> list[Change]:
    """Everything that the files say."""
    return CounterFiles(folder).look()
