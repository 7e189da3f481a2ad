"""What checks of deaths share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.disks import MAY_MOUNT, AllSharedMemory, OwnSharedMemory


@pytest.fixture
def shared_memory() -> Iterator[OwnSharedMemory | AllSharedMemory]:
    """What the sweeps of a check have for /dev/shm; nothing is left there in the end."""
    with OwnSharedMemory() if MAY_MOUNT else AllSharedMemory() as made:
        yield made
        assert made.left() == []
