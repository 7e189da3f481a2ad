"""Checks the claims that must hold, and prints them at the end of the session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.gate.claims import Claim

_LINES = pytest.StashKey[list[str]]()


@pytest.fixture
def must_hold(request: pytest.FixtureRequest) -> Callable[[Claim], None]:
    """Fails the check when a claim did not pass; either way the claim is printed at the end."""

    def hold(claim: Claim) -> None:
        request.config.stash.setdefault(_LINES, []).extend(claim.lines())
        if claim.outcome != "passed":
            pytest.fail("\n".join(claim.lines()), pytrace=False)

    return hold


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the claims."""
    if lines := config.stash.get(_LINES, []):
        terminalreporter.section("ratios, 95 % intervals")
        for line in lines:
            terminalreporter.line(line)
