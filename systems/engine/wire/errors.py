"""What ends a rank when its environment workers do not go on: the errors, and which environments are late."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class WorkerDied(RuntimeError):  # noqa: N818  says what happened, as BrokenPipeError's kin do
    """An environment worker ended; the text holds its traceback, or the signal that killed it."""


class WorkerStalled(RuntimeError):  # noqa: N818
    """An environment has not answered for too long; the text holds its worker's stack."""


class Waits:
    """Since when each environment has an action to apply, and when its worker was last heard; N environments.

    A worker that steps a pool answers for M of its B environments at a time, in the order in which they end. So one of
    them may rightly go without an answer for as long as fewer than M have an action. It is late when M have one and the
    pool has been silent for too long, or when the pool has surely answered for others after too long a time.
    """

    def __init__(self, num_envs: int, envs_per_worker: int, of_recv: int) -> None:
        """`of_recv`: M, where there are pools, which have a worker each; else 0."""
        self._per_worker, self._of_recv = envs_per_worker, of_recv
        self._waiting = np.zeros(num_envs, np.bool_)
        self._sent_at = np.zeros(num_envs)
        num_workers = num_envs // envs_per_worker
        self._asked_at, self._heard_at = np.zeros(num_workers), np.zeros(num_workers)
        self._answered_after, self._nothing_at = np.zeros(num_workers), 0.0

    def sent(self, envs: npt.NDArray[np.int64] | int, now: float) -> None:
        """Environments were sent actions."""
        self._waiting[envs] = True
        self._sent_at[envs] = now
        self._asked_at[envs // self._per_worker] = now

    def reading(self) -> float:
        """To be called before replies are read; returns a time before which those that come have not been written."""
        before, self._nothing_at = self._nothing_at, time.perf_counter()
        return before

    def heard(self, envs: npt.NDArray[np.int32], before: float) -> None:
        """Environments have replied, none of them before the time that `reading` gave."""
        workers = envs // self._per_worker
        self._waiting[envs] = False
        self._heard_at[workers] = time.perf_counter()
        self._answered_after[workers] = before

    def late(self, limit_s: float, now: float) -> int | None:
        """An environment that should have answered for longer than `limit_s`, if there is one."""
        workers = np.arange(len(self._waiting)) // self._per_worker
        if self._of_recv:
            num_waiting = self._waiting.reshape(-1, self._per_worker).sum(1)
            is_silent = (num_waiting >= self._of_recv) & (np.maximum(self._asked_at, self._heard_at) < now - limit_s)
            late = is_silent[workers] | (self._sent_at < self._answered_after[workers] - limit_s)
        else:
            late = np.maximum(self._sent_at, self._heard_at[workers]) < now - limit_s
        late &= self._waiting
        return int(late.argmax()) if late.any() else None
