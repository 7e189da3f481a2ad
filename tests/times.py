"""Where the time of the tests goes: `nox -s tests -- --times` prints it by kind and by file.

A phase of a test (what it needs is made, it runs, that is removed again) is of the kind of the most that it started:
it installs something, runs a sweep or starts another process; else it is pure. What a test starts inside the programs
that it starts is theirs.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

KINDS = ("pure", "process", "sweep", "installing")
INSTALL = {"pip", "venv", "hatchling", "uv", "virtualenv", "conda"}
RUN = {"run", "gate", "profile", "evaluate"}
"""Commands of ours that run something."""
MOST_FILES = 40
_PROPERTY = "started"


class Started:
    """The most that was started since the last `take`."""

    def __init__(self) -> None:
        self._most = 0
        sys.addaudithook(self._hear)

    def take(self) -> int:
        """The number of a kind."""
        most, self._most = self._most, 0
        return most

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"os.fork", "os.posix_spawn"}:
            self._most = max(self._most, KINDS.index("process"))
        elif event == "subprocess.Popen":
            with suppress(TypeError):
                self._most = max(self._most, _kind_of([str(word) for word in arguments[1]]))


def _kind_of(words: list[str]) -> int:
    """The kind of a command."""
    programs = {Path(word).name for word in words[:6]}
    if programs & INSTALL:
        return KINDS.index("installing")
    is_ours = "rlbench" in programs or any(word.startswith(("harness", "rlbench")) for word in words)
    return KINDS.index("sweep" if is_ours and RUN & set(words) else "process")


class Times:
    """Notes the kind of each phase in the process that runs tests, and prints the table in the one that reports."""

    def __init__(self) -> None:
        self._started = Started()
        self._seconds: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(KINDS))
        self._counts: dict[str, int] = defaultdict(int)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Leaves the kind with the report, which may go to another process."""
        report = yield
        report.user_properties = [*report.user_properties, (_PROPERTY, self._started.take())]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds the seconds of a phase."""
        kind = next((value for name, value in reversed(report.user_properties) if name == _PROPERTY), 0)
        assert isinstance(kind, int)
        path = report.nodeid.partition("::")[0]
        self._seconds[path][kind] += report.duration
        self._counts[path] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the table."""
        terminalreporter.section("where the time goes, in s")
        terminalreporter.line(_row("file", "tests", *KINDS, "all"))
        totals = [sum(of_file[kind] for of_file in self._seconds.values()) for kind in range(len(KINDS))]
        terminalreporter.line(_row("all files", sum(self._counts.values()), *totals, sum(totals)))
        slowest = sorted(self._seconds, key=lambda path: -sum(self._seconds[path]))
        for path in slowest[:MOST_FILES]:
            seconds = self._seconds[path]
            terminalreporter.line(_row(path.removeprefix("tests/"), self._counts[path], *seconds, sum(seconds)))
        left = slowest[MOST_FILES:]
        together = sum(sum(self._seconds[path]) for path in left)
        terminalreporter.line(f"{len(left)} files more: {together:.1f} s")


def _row(name: str, *columns: object) -> str:
    texts = [f"{each:.1f}" if isinstance(each, float) else str(each) for each in columns]
    return f"{name:52}" + "".join(f"{text:>11}" for text in texts)


def add_option(parser: pytest.Parser) -> None:
    """Adds --times."""
    parser.addoption("--times", action="store_true", help="print where the time goes, by kind and by file")


def begin(config: pytest.Config) -> None:
    """Begins to note it, where that was asked for."""
    if config.getoption("--times"):
        config.pluginmanager.register(Times(), "times")
