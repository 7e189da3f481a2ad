"""Tables that tests make give their descriptors back at the end of the test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from systems.engine.workers import tables


@pytest.fixture(autouse=True)
def _descriptors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of the tables that this test made, where it did not close them; a module's fixtures close their own."""
    allocate, made = tables._allocate, list[tuple[int, int]]()

    def note(num_bytes: int) -> int:
        fd = allocate(num_bytes)
        made.append((fd, os.fstat(fd).st_ino))
        return fd

    monkeypatch.setattr(tables, "_allocate", note)
    yield
    for fd, inode in made:
        with suppress(OSError):  # it was closed
            if os.fstat(fd).st_ino == inode:  # else it is somebody else's by now
                os.close(fd)
