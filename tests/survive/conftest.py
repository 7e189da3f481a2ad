"""What checks of deaths share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.disks import SharedMemory, own_shared_memory


@pytest.fixture
def shared_memory() -> Iterator[SharedMemory]:
    """What the sweeps of a check have for /dev/shm; nothing is left there in the end."""
    with own_shared_memory() as made:
        yield made
        assert made.left() == []
