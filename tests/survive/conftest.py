from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --share."""
    parser.addoption("--share", type=float, default=1.0, help="of the deaths, sweeps and cells; all by default")


@pytest.fixture(scope="session")
def share(request: pytest.FixtureRequest) -> float:
    """How much of everything is done."""
    return float(request.config.getoption("--share"))
