from __future__ import annotations

import pytest

from rlbench.harness.plan import libraries


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    """Each library is there, in the user's cache folder."""
    for library in libraries.all_libraries().values():
        if library.unavailable(libraries.environment_of(library)) is None:
            libraries.install(library, print)
