"""Which lane runs (`tests/lanes.py`), where the time goes (`--times`, `tests/times.py`), and that nothing is left."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import left_behind, times

STARTS_PROCESSES = ("RunningSweep", "launch(", "subprocess", "multiprocessing", "RLBENCH")
"""In the text of a file of tests: it waits more than it computes, and goes first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of our own."""
    parser.addoption("--deep", action="store_true", help="run what is marked `deep` too")
    times.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Says what marks there are."""
    config.addinivalue_line("markers", "deep: runs in `nox -s deep` alone; `--deep` runs it here")
    times.begin(config)
    left_behind.begin(config)


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests and all that they start make in the temporary folder is made in pytest's own."""
    with pytest.MonkeyPatch.context() as patched:
        folder = str(tmp_path_factory.mktemp("t"))
        patched.setenv("TMPDIR", folder)
        patched.setattr(tempfile, "tempdir", folder)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is deep, and puts first what starts processes."""
    if not config.getoption("--deep"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("deep")])
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
    starts = {path: _starts_processes(path) for path in {item.path for item in items}}
    items.sort(key=lambda item: not starts[item.path])


def _starts_processes(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(word in text for word in STARTS_PROCESSES)
