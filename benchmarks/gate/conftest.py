"""Prints what was found at the end of the session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.gate.claims import Claim

_LINES = pytest.StashKey[list[str]]()


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds a line to what is printed at the end."""
    return request.config.stash.setdefault(_LINES, []).append


@pytest.fixture
def must_hold(say: Callable[[str], None]) -> Callable[[Claim], None]:
    """Fails the check when a claim did not pass; either way the claim is printed at the end."""

    def hold(claim: Claim) -> None:
        for line in claim.lines():
            say(line)
        if claim.outcome != "passed":
            pytest.fail("\n".join(claim.lines()), pytrace=False)

    return hold


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the lines."""
    if lines := config.stash.get(_LINES, []):
        terminalreporter.section("found")
        for line in lines:
            terminalreporter.line(line)
