"""A run of the tests leaves nothing: no process, no file in /tmp or /dev/shm, no table's descriptor; else it fails.

Whatever a test starts inherits a variable of the run, by which it is found whoever its parent is by then, and the name
of the test, which pytest puts there. Temporary files go to pytest's own folder (`conftest.py`). What got past
that is the run's where a process of tests made it, or where `tests/watching.py` saw a process that the run has started
use it; neighbours, another run of the tests among them, make such files too, and are no fault.
"""

from __future__ import annotations

import gc
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlbench.harness.run import zygote_client
from tests.descriptors import open_files
from tests.watching import MARK, PLACES

ROOT = Path(__file__).resolve().parents[1]
TEST = "PYTEST_CURRENT_TEST"
TABLE = "/memfd:rlbench"
PATIENCE_S = 60.0
"""What is ending has ended by then, on however slow a machine."""
AT_END: list[Callable[[], None]] = [zygote_client.end]
"""What ends processes that live as long as the tests of this process."""
LEFT = pytest.StashKey[list[str]]()
_OUTPUT = "left_behind"


class OfProcess:
    """What tests leave open, or made, in the process that runs them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._made = set[Path]()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"open", "os.mkdir"} and isinstance(arguments[0], (str, Path)):
            path, mode = Path(arguments[0]), arguments[1]
            makes = event == "os.mkdir" or any(each in str(mode) for each in "wax+")
            if makes and path.parent in PLACES and not path.exists():  # as it may be where it is only made sure of
                self._made.add(path)

    def pytest_sessionfinish(self) -> None:
        """Notes it for the process that reports, and ends what serves `multiprocessing` here."""
        while AT_END:
            AT_END.pop()()
        gc.collect()
        who = os.environ.get("PYTEST_XDIST_WORKER", "this process")
        left = [f"{path}, made by {who}" for path in sorted(self._made - pytests(self._config)) if path.exists()]
        if tables := sum(name.startswith(TABLE) for name in open_files()):
            left.append(f"{tables} descriptors of tables in {who}")
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_OUTPUT] = left
        self._config.stash[LEFT] = left
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # they would end with this process
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


class OfRun:
    """What all tests together leave, looked for when all processes that ran some have ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._mark = secrets.token_hex(8)
        self._watch = subprocess.Popen(
            [sys.executable, "-m", "tests.watching", self._mark],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        os.environ[MARK] = self._mark
        self._left: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes what a process of pytest-xdist has noted."""
        self._left += getattr(node, "workeroutput", {}).get(_OUTPUT, [])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Fails the run for what was left."""
        yield
        own = self._config.stash[LEFT]
        self._left += own
        deadline = time.monotonic() + PATIENCE_S
        while (processes := list(marked(self._mark))) and time.monotonic() < deadline:
            time.sleep(0.1)
        self._left += map(_said, processes)
        paths = {Path(line) for line in self._watch.communicate()[0].splitlines()} - pytests(self._config)
        self._left += [f"{path}, of a process that was started" for path in sorted(paths)]
        if self._left:
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            assert reporter is not None
            reporter.section("left behind", red=True)
            for line in self._left:
                reporter.line(line)
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytests(config: pytest.Config) -> set[Path]:
    """Pytest's temporary folder, and what that is in."""
    own: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return {own, *own.parents}


def marked(mark: str) -> Iterator[psutil.Process]:
    """Processes that inherited the variable, beside this one; one that has ended and was not waited for is none."""
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.pid != os.getpid() and one.environ().get(MARK) == mark and one.status() != psutil.STATUS_ZOMBIE:
                yield one


def _said(one: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"process {one.pid} of {one.environ().get(TEST, 'no test')}: {' '.join(one.cmdline())[:200]}"
    return f"process {one.pid}"


def begin(config: pytest.Config) -> None:
    """Begins to watch; called once in each process."""
    config.pluginmanager.register(OfProcess(config), "left-in-process")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(OfRun(config), "left-behind")
