"""Shared memory: one table of named columns, allocated once, written and read in place by a rank and its workers.

A comment beside each column in `rollout_columns` says who writes it. Nothing here blocks: indices that go through pipes
say whose turn it is with a row. The memory is anonymous (memfd): it has no name, so it goes with the last process that
maps it, however that process ends.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from rlbench.systems.spaces.observations import leaves_of

if TYPE_CHECKING:
    import gymnasium
    import numpy.typing as npt

    from rlbench.systems.spaces.actions import ActionLayout

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class SharedColumn:
    """One array of a table."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Bytes of the array, rounded up to a cache line."""
        exact = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return -(-exact // ALIGNMENT) * ALIGNMENT


class SharedTable:
    """Columns in one piece of shared memory; `table["name"]` is a numpy array. Can be passed to a child process."""

    def __init__(self, columns: tuple[SharedColumn, ...], fd: int | None = None) -> None:
        self.columns = columns
        size = sum(column.num_bytes for column in columns)
        self._fd = _allocate(size) if fd is None else fd
        memory = mmap.mmap(self._fd, size)
        self.memory = np.frombuffer(memory, np.uint8)
        """All of it, [bytes]."""
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        offset = 0
        for column in columns:
            count = math.prod(column.shape)
            flat = np.frombuffer(memory, dtype=column.dtype, count=count, offset=offset) if count else np.empty(0)
            self._arrays[column.name] = flat.reshape(column.shape)
            offset += column.num_bytes

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._arrays[name]

    def __reduce__(self) -> tuple[Any, ...]:
        """Sends the file descriptor along; works only while a process is being started."""
        return _attach, (self.columns, reduction.DupFd(self._fd))

    def close(self) -> None:
        """Gives the descriptor back; the memory goes when no array refers to it."""
        os.close(self._fd)


def _allocate(num_bytes: int) -> int:
    """Makes anonymous shared memory; raises ValueError when too little is free, before the kernel kills processes."""
    available = psutil.virtual_memory().available
    if num_bytes > available:
        raise ValueError(
            f"the rollout of a rank needs {num_bytes / 2**30:,.1f} GiB of shared memory, {available / 2**30:,.1f} GiB "
            "are available; use fewer environments or steps, or smaller observations"
        )
    fd = os.memfd_create("rlbench")
    try:
        os.posix_fallocate(fd, 0, num_bytes)
    except OSError:
        os.close(fd)
        raise
    return fd


def _attach(columns: tuple[SharedColumn, ...], fd: Any) -> SharedTable:
    return SharedTable(columns, fd.detach())


def rollout_columns(
    space: gymnasium.Space[Any], actions: ActionLayout, num_envs: int, num_slots: int, state_size: int
) -> tuple[SharedColumn, ...]:
    """The columns of a rank's table: a row for each slot, or for each environment in the columns `final/...`.

    A slot holds one env step: the observation, the recurrent state before it, the action chosen on it, and what the
    action gave. With `ActorSide` collecting, the worker also writes the rank's columns.
    """
    observations = []
    for leaf in leaves_of(space):
        observations += [
            SharedColumn(f"obs/{leaf.key}", (num_slots, *leaf.shape), leaf.dtype.str),  # worker
            SharedColumn(f"final/{leaf.key}", (num_envs, *leaf.shape), leaf.dtype.str),  # worker, where `truncated`
        ]
    action = (num_slots, actions.size), np.dtype(actions.dtype).str
    return (
        *observations,
        SharedColumn("prev_action", *action),  # worker; not read on the first step of an episode
        SharedColumn("episode_start", (num_slots,), "|b1"),  # worker
        SharedColumn("action", *action),  # rank
        SharedColumn("log_prob", (num_slots,), "<f4"),  # rank
        SharedColumn("value", (num_slots,), "<f4"),  # rank
        SharedColumn("version", (num_slots,), "<i8"),  # rank: policy version that chose the action
        SharedColumn("reward", (num_slots,), "<f4"),  # worker
        SharedColumn("terminated", (num_slots,), "|b1"),  # worker
        SharedColumn("truncated", (num_slots,), "|b1"),  # worker
        SharedColumn(
            "bootstrap", (num_slots,), "<f4"
        ),  # rank: value of the observation that follows, where it is needed
        SharedColumn("state", (num_slots, state_size), "<f4"),  # rank: recurrent state before the step
        SharedColumn("episode", (num_slots, 4), "<f4"),  # worker, where an episode ends: return, length, success, spl
        SharedColumn("counts", (num_slots,), "|b1"),  # worker of a batch: whether the step was more than a reset
        SharedColumn("batch/at", (num_envs,), "<i8"),  # rank: the slot of each environment of a batch, for its command
        SharedColumn("batch/next", (num_envs,), "<i8"),  # rank: where what follows goes
    )


def episode_lengths(table: SharedTable, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The length of the episode that ended with the step in each of `slots` [S], in env steps; 0 where none did."""
    ended = table["terminated"][slots] | table["truncated"][slots]
    return np.where(ended, table["episode"][slots, 1], 0).astype(np.int64)
