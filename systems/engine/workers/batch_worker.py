"""An environment worker that steps batches of environments, each in one call. This module needs no torch.

It differs from `worker.py` in what a command is for: the environments from the one that it names to the end of its
batch. The rank has written to the table where each of them is; the reply, of the first one, is for all. What the batch
gives is written in a few operations on arrays, whatever its size. An environment of several agents is such a batch,
where each agent has the place of an environment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rlbench.harness.contract.agents import agents_per_env
from rlbench.harness.contract.envs import make_counted_agents, make_counted_batch
from rlbench.harness.metering.meter_file import meter_path
from rlbench.harness.processes import process
from rlbench.systems.engine.workers.worker import Column, Worker, WorkerSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rlbench.harness.contract.envs import Batched
    from rlbench.harness.metering.batches.counted_agents import CountedAgents
    from rlbench.harness.metering.batches.counted_batch import CountedBatch
    from rlbench.harness.metering.batches.steps import BatchStep

    Rows = NDArray[np.int64]


class BatchedWorker(Worker):
    """Writes what several environments gave at once; letters: K of them."""

    def __init__(self, settings: WorkerSettings, commands: int, replies: int) -> None:
        super().__init__(settings, commands, replies)
        self._size = settings.envs_per_batch
        self._counts = self._table["counts"]
        self._at, self._next = self._table["batch/at"], self._table["batch/next"]

    def _write_step(self, envs: Rows, slots: Rows, nexts: Rows, actions: NDArray[Any], given: BatchStep) -> None:
        """Writes what followed the `actions`, rows [K, ...], of environments [K], in `slots` [K] and `nexts` [K]."""
        self._reward[slots] = given.rewards
        terminated, truncated = self._ends
        terminated[slots] = given.terminated
        cut = given.truncated & ~given.terminated
        truncated[slots] = cut
        self._counts[slots] = given.counts
        if given.final is not None:
            self._episode[slots[given.ended]] = given.episodes[given.ended]
        if cut.any():
            self._write(self._final, envs[cut], given.final, cut)
        self._prev_action[nexts] = actions
        self._write_begun(nexts, given.starts, given.observation)

    def _write_begun(self, nexts: Rows, starts: Any, observation: Any) -> None:
        """Writes what to act on next, [K, ...], and whether an episode begins there, [K]."""
        self._episode_start[nexts] = starts
        self._write(self._observations, nexts, observation)

    def _write(self, columns: list[Column], rows: Rows, observation: Any, of: Any = None) -> None:
        """Writes observations, which their counters have checked; those of environments `of`, if given."""
        for leaf, _, column, _, _ in columns:
            values = leaf.read(observation)
            column[rows] = values if of is None else values[of]


class BatchWorker(BatchedWorker):
    """Steps the batches that its commands name, or the environments with several agents."""

    def __init__(self, settings: WorkerSettings, commands: int, replies: int) -> None:
        super().__init__(settings, commands, replies)
        self._num_agents = agents_per_env(settings.scenario)
        self._batches: dict[int, CountedBatch | CountedAgents] = {}
        self._envs_of: dict[int, Rows] = {}

    def _number(self, index: int) -> int:
        return super()._number(index) // self._num_agents

    def _opened(self) -> Mapping[int, CountedBatch | CountedAgents]:
        return self._batches

    def _begin(self, index: int, slot: int) -> None:  # noqa: ARG002  the table has all slots
        first = index - self._settings.first
        seats = self._settings.seats[first : first + self._size]
        meter = meter_path(self._settings.folder, seats[0].place.rank)
        scenario = cast("Batched", self._settings.scenario)
        make = make_counted_batch if self._num_agents == 1 else make_counted_agents
        batch = make(scenario, seats, self._settings.folder, meter)
        self._batches[index] = batch
        self._envs_of[index] = np.arange(index, index + self._size)
        nexts = self._next[index : index + self._size]
        self._prev_action[nexts] = 0
        self._write_begun(nexts, True, batch.reset())  # noqa: FBT003  of all
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
            raise RuntimeError(f"{self._named(index)}: one of their processes has ended") from error
        after_s = time.thread_time()
        batch.used(before_s - self._rested_s, after_s - before_s)
        self._rested_s = after_s
        self._write_step(self._envs_of[index], slots, nexts, rows, given)

    def _named(self, index: int) -> str:
        first = self._number(index)
        return f"environment {first}" if self._num_agents > 1 else f"environments {first} to {first + self._size - 1}"
