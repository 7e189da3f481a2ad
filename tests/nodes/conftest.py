"""What checks on hosts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes.hosts import TwoHosts, two_hosts


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    """Two hosts with a quick link."""
    with two_hosts() as made:
        yield made
