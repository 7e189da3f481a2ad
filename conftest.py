"""Which lane runs (`tests/lanes.py`), which slice of it, where the time goes (`tests/times.py`), and what is left."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import left_behind, times
from tests.vanishing import vanishing_folder

STARTS_PROCESSES = ("RunningSweep", "launch(", "subprocess", "multiprocessing", "RLBENCH", "run_ranks", "in_turn(")
"""In the text of a file of tests: it waits more than it computes, and goes first."""

TERMINAL = ("COLUMNS", "LINES")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of our own."""
    parser.addoption("--deep", action="store_true", help="run what is marked `deep` too")
    parser.addoption("--slice", default="0/1", help="K/N: the tests whose number has K left over when divided by N")
    times.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Says what marks there are, and forgets how wide the terminal is: a test that depends on it says so itself.

    Readline, which pytest imports, notes 80 columns in the environment of all that it starts, pytest-xdist's processes
    among them. Torch has one thread here: several that wait for each other on a busy machine, in turns of microseconds,
    take twenty times as long. Ranks choose for themselves how many they have.
    """
    for name in TERMINAL:
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in what a script starts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start is to be interrupted
    if "test_*.py" in config.getini("python_files"):  # what measures speeds has files of other names
        os.environ["OMP_NUM_THREADS"] = "1"
    config.addinivalue_line("markers", "deep: runs in `nox -s deep` alone; `--deep` runs it here")
    times.begin(config)
    left_behind.begin(config)


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests and all that they start make in the temporary folder is made in pytest's own.

    Its path is as short as can be: where that of an agent's temporary files is too long for a socket, they go to /tmp.
    """
    base = tmp_path_factory.getbasetemp()
    folder = base.parent / os.environ["PYTEST_XDIST_WORKER"] if "PYTEST_XDIST_WORKER" in os.environ else base / "t"
    folder.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TMPDIR", str(folder))
        patched.setattr(tempfile, "tempdir", str(folder))
        yield


@pytest.fixture(scope="session")
def shm_prefix() -> Iterator[str]:
    """Names in /dev/shm that begin so are removed after the tests, also where those were killed."""
    with vanishing_folder("rlbench-test-") as folder:
        yield folder.name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is deep or of another slice, and puts first what starts processes."""
    if not config.getoption("--deep"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("deep")])
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
    number, of = map(int, config.getoption("--slice").split("/"))
    config.hook.pytest_deselected(items=[item for at, item in enumerate(items) if at % of != number % of])
    items[:] = items[number % of :: of]
    starts = {path: _starts_processes(path) for path in {item.path for item in items}}
    items.sort(key=lambda item: not starts[item.path])


def _starts_processes(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(word in text for word in STARTS_PROCESSES)
