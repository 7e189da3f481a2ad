"""What checks of deaths share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness.disks import SharedMemory, own_shared_memory

_SAID = "said"


@pytest.fixture
def shared_memory() -> Iterator[SharedMemory]:
    """What the sweeps of a check have for /dev/shm; nothing is left there in the end."""
    with own_shared_memory() as made:
        yield made
        assert made.left() == []


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Has lines printed at the end, by the process that reports: those that run checks have no output."""
    return lambda lines: record_property(_SAID, lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints them."""
    reports = [report for of_outcome in terminalreporter.stats.values() for report in of_outcome]
    for report in reports:
        if getattr(report, "when", None) == "call":
            for name, lines in report.user_properties:
                if name == _SAID:
                    terminalreporter.line(lines)
