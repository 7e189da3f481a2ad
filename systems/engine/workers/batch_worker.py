"""An environment worker that steps batches of environments, each in one call. This module needs no torch.

It differs from `worker.py` in what a command is for: the environments from the one that it names to the end of its
batch. The rank has written to the table where each of them is; the reply, of the first one, is for all. What the batch
gives is written in a few operations on arrays, whatever its size. Letters: B environments of a batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from harness.contract.envs import make_counted_batch
from harness.metering.meter_file import meter_path
from harness.processes import process
from systems.engine.workers.worker import Column, Worker, WorkerSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.contract.envs import Batched
    from harness.metering.batches.counted_batch import CountedBatch


class BatchWorker(Worker):
    """Steps the batches that its commands name."""

    def __init__(self, settings: WorkerSettings, commands: int, replies: int) -> None:
        super().__init__(settings, commands, replies)
        self._size = settings.envs_per_batch
        self._batches: dict[int, CountedBatch] = {}
        self._counts = self._table["counts"]
        self._at, self._next = self._table["batch/at"], self._table["batch/next"]

    def _opened(self) -> Mapping[int, CountedBatch]:
        return self._batches

    def _begin(self, index: int, slot: int) -> None:  # noqa: ARG002  the table has all slots
        first = index - self._settings.first
        seats = self._settings.seats[first : first + self._size]
        meter = meter_path(self._settings.folder, seats[0].place.rank)
        scenario = cast("Batched", self._settings.scenario)
        batch = make_counted_batch(scenario, seats, self._settings.folder, meter)
        self._batches[index] = batch
        nexts = self._next[index : index + self._size]
        self._write(self._observations, nexts, batch.reset())
        self._prev_action[nexts] = 0
        self._episode_start[nexts] = True
        self._rested_s = time.thread_time()
        process.note_shared_memory(self._settings.label, [os.getpid()])

    def step(self, index: int, slot: int, slot_next: int) -> None:  # noqa: ARG002  the table has all slots
        """Applies the actions of a batch, and writes what follows."""
        slots, nexts = (column[index : index + self._size] for column in (self._at, self._next))
        rows, batch = self._action[slots], self._batches[index]
        before_s = time.thread_time()
        try:
            given = batch.step(self._to_env(rows))
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            first = self._seat(index).global_index
            who = f"environments {first} to {first + self._size - 1}"
            raise RuntimeError(f"{who}: one of their processes has ended") from error
        after_s = time.thread_time()
        batch.used(before_s - self._rested_s, after_s - before_s)
        self._rested_s = after_s
        self._reward[slots] = given.rewards
        terminated, truncated = self._ends
        terminated[slots] = given.terminated
        cut = given.truncated & ~given.terminated
        truncated[slots] = cut
        self._counts[slots] = given.counts
        if given.final is not None:
            ended = np.flatnonzero(given.ended)
            self._episode[slots[ended]] = given.episodes[ended]
        if cut.any():
            envs = np.flatnonzero(cut)
            self._write(self._final, index + envs, given.final, envs)
        self._prev_action[nexts] = rows
        self._episode_start[nexts] = given.starts
        self._write(self._observations, nexts, given.observation)

    def _write(
        self, columns: list[Column], rows: NDArray[np.int64], observation: Any, of: NDArray[np.int64] | None = None
    ) -> None:
        """Writes a batch's observations, which `CountedBatch` has checked; those of environments `of`, if given."""
        for leaf, _, column, _, _ in columns:
            values = leaf.read(observation)
            column[rows] = values if of is None else values[of]
