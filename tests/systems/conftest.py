"""Tests of systems compute on one thread, and tables that they make give their descriptors back at their end.

Threads that wait for each other within tiny operations take several times what the operations do, and far more where
other programs use the cores too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from rlbench.systems.engine.workers import tables


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


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
