from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.processes import process
from rlbench.systems.engine.workers.tables import ALIGNMENT, SharedColumn, SharedTable, rollout_columns
from tests.descriptors import open_files
from tests.systems.actions import choices
from tests.systems.engine.counting import SPACE
from tests.systems.engine.ranks import run_ranks

COLUMNS = (
    SharedColumn("flag", (3,), "|b1"),
    SharedColumn("pixels", (2, 5, 7), "|u1"),
    SharedColumn("count", (4,), "<i8"),
    SharedColumn("value", (2, 3), "<f4"),
)
MEMORY = "/memfd:rlbench (deleted)"


def test_columns_do_not_overlap() -> None:
    """Each column begins on a cache line of its own, with its shape and dtype, at zero; writing one leaves the rest."""
    table = SharedTable(COLUMNS)
    for column in COLUMNS:
        array = table[column.name]
        assert (array.shape, array.dtype) == (column.shape, np.dtype(column.dtype))
        assert array.ctypes.data % ALIGNMENT == 0
        assert not array.any()
    for number, column in enumerate(COLUMNS, start=1):
        table[column.name][...] = number
    for number, column in enumerate(COLUMNS, start=1):
        assert (table[column.name] == np.array(number, column.dtype)).all()
    table.close()


def fill(table: SharedTable, number: int) -> None:
    """In a child: adds to what it finds."""
    table["count"][:] += number
    table["pixels"][1, 4, 6] = 255


def share(folder: Path) -> None:
    """Writes, lets two processes write one after the other, and leaves what it then sees."""
    context = multiprocessing.get_context("forkserver")
    table = SharedTable(COLUMNS)
    table["count"][:] = [1, 2, 3, 4]
    for number in (10, 100):
        child = context.Process(target=fill, args=(table, number))
        child.start()
        child.join()
        assert child.exitcode == 0
    np.savez(folder / "seen.npz", count=table["count"], pixels=table["pixels"])
    assert process.shared_memory_names(os.getpid()) == []
    assert open_files().count(MEMORY) == 2, "the table's descriptor, and the one that Python's mmap makes of it"
    table.close()
    assert open_files().count(MEMORY) == 1
    assert table["count"][0] == 111, "arrays that are in use outlive the descriptor"


def test_shared_with_a_child(tmp_path: Path) -> None:
    """A table that is passed to a child process is the same memory there, without a name in /dev/shm."""
    run_ranks(share, 1, tmp_path)
    seen = np.load(tmp_path / "seen.npz")
    assert seen["count"].tolist() == [111, 112, 113, 114]
    assert seen["pixels"][1, 4, 6] == 255
    assert seen["pixels"].sum() == 255


def test_columns_of_a_rank() -> None:
    """A rank's table has a row for each slot, and one for each environment where an environment has one of a thing."""
    columns = {
        column.name: column for column in rollout_columns(SPACE, choices(4), num_envs=2, num_slots=8, state_size=5)
    }
    assert columns["obs/where"] == SharedColumn("obs/where", (8, 3), "<f4")
    assert columns["final/where"] == SharedColumn("final/where", (2, 3), "<f4")
    assert columns["state"] == SharedColumn("state", (8, 5), "<f4")
    per_step = {"prev_action", "episode_start", "action", "log_prob", "value", "version", "reward", "bootstrap"}
    assert {columns[name].shape[0] for name in per_step | {"terminated", "truncated", "episode"}} == {8}


def test_a_rollout_that_does_not_fit_is_refused() -> None:
    """More memory than is available is an error at once, before the kernel kills processes to find it."""
    before = open_files().count(MEMORY)
    with pytest.raises(ValueError, match=r"needs [\d,.]+ GiB of shared memory, [\d,.]+ GiB are available; use fewer"):
        SharedTable((SharedColumn("obs/x", (1 << 40, 1000), "<f4"),))
    assert open_files().count(MEMORY) <= before, "other tests' tables may go meanwhile, none may come"


def test_memory_that_is_not_given_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may refuse what seemed available: its error goes on, and the file goes."""
    fd = os.memfd_create("rlbench")
    monkeypatch.setattr(os, "memfd_create", lambda _name: fd)
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="No space left"):
        SharedTable(COLUMNS)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def refuse(_fd: int, _offset: int, _num_bytes: int) -> None:
    """In place of the kernel's."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
