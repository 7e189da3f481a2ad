"""Reports what only the trainer knows: what became of the env steps, and where the time goes.

Any thread writes, to the process's one file of reports, under a lock (microseconds). Nothing else blocks. A forked
child gets a lock and a file of its own. Outside rlbench, each call returns at once.
"""

from __future__ import annotations

import operator
import os
import threading
import time
from typing import TYPE_CHECKING, Any, SupportsIndex

from rlbench_client.counters import AT, REPORTED, SPANS, SPANS_AT, CounterFile, folder

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Process:
    """The reports of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew: after a fork, what the child inherited is the parent's."""
        self.lock = threading.Lock()
        self._file: CounterFile | None = None
        self.timed_thread: int | None = None
        self.open_spans: list[list[float]] = []
        """Kind and start time of each, the innermost last."""

    @property
    def file(self) -> CounterFile:
        """The file of reports, made at the first report."""
        if self._file is None:
            self._file = CounterFile(num_envs=0)
        return self._file

    def add(self, name: str, amount: int) -> None:
        """Adds to a counter, and marks it as reported."""
        ints = self.file.ints
        ints[AT[name]] += amount
        ints[AT["reported"]] |= 1 << REPORTED.index(name)


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def learned(num_env_steps: SupportsIndex, lag: float | Iterable[float] | None = None) -> None:
    """Reports env steps that were learned from for the first time.

    Args:
        num_env_steps: how many; each rank reports its own.
        lag: by how many optimiser steps the weights that chose the actions were older: one number for all of these
            env steps, or one for each. Leave it out if the trainer does not know.
    """
    if folder() is None:
        return
    number = _count(num_env_steps, "learned")
    lags = None if lag is None else _lags(lag, number)
    with _process.lock:
        _process.add("learned", number)
        if lags is not None:
            total, largest = lags
            _process.add("lag_sum", total)
            ints = _process.file.ints
            ints[AT["lag_max"]] = max(ints[AT["lag_max"]], largest)


def reused(num_env_steps: SupportsIndex) -> None:
    """Reports env steps that were learned from again: further epochs, stale samples."""
    _report("reused", num_env_steps)


def discarded(num_env_steps: SupportsIndex) -> None:
    """Reports env steps that were thrown away and will never be learned from."""
    _report("discarded", num_env_steps)


def in_flight(num_env_steps: SupportsIndex) -> None:
    """Reports env steps that are neither learned nor discarded; call it before the trainer ends by itself."""
    if folder() is None:
        return
    number = _count(num_env_steps, "in_flight")
    with _process.lock:
        _process.add("in_flight", number - _process.file.ints[AT["in_flight"]])


def iteration() -> None:
    """Reports the end of an iteration (collecting, then learning), which is a part of the run's time series."""
    _report("iterations", 1)


def _report(name: str, amount: SupportsIndex) -> None:
    if folder() is None:
        return
    number = _count(amount, name)
    with _process.lock:
        _process.add(name, number)


def _count(value: Any, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"rlbench_client.{name}({value!r}): must be a whole number of at least 0")
    return number


def _lags(lag: float | Iterable[float], number: int) -> tuple[int, int]:
    """The sum and the largest of the lags of `number` env steps, both rounded."""
    import numpy as np

    lags = np.asarray(lag, dtype=np.float64)
    if not np.all(np.isfinite(lags)) or np.any(lags < 0) or lags.size not in {1, number}:
        raise ValueError(f"rlbench_client.learned(lag={lag!r}): must be one number, or one for each, of at least 0")
    if not number:
        return 0, 0
    return round(float(lags.mean()) * number), round(float(lags.max()))


class span:  # noqa: N801  it is called like a function: `with span("learn"):`
    """Times what happens inside; a span around it is paused meanwhile.

    Counts only in the thread of a process that opened the first span, so that a rank's seconds add up to its time.

    Args:
        kind: one of `SPANS`, such as "infer", "learn", "communicate", "wait:rollout".
    """

    def __init__(self, kind: str) -> None:
        if kind not in SPANS:
            raise ValueError(f"rlbench_client.span({kind!r}): unknown; known: {', '.join(SPANS)}")
        self._kind = SPANS.index(kind)
        self._counts = False

    def __enter__(self) -> None:
        self._counts = folder() is not None and self._is_timed_thread()
        if self._counts:
            now = time.perf_counter()
            if _process.open_spans:
                _end(now)
            _process.open_spans.append([self._kind, now])

    def __exit__(self, *_: object) -> None:
        if self._counts and _process.open_spans:  # else it was opened before a fork
            now = time.perf_counter()
            _end(now)
            _process.open_spans.pop()
            if _process.open_spans:
                _process.open_spans[-1][1] = now

    @staticmethod
    def _is_timed_thread() -> bool:
        with _process.lock:
            if _process.timed_thread is None:
                _process.timed_thread = threading.get_ident()
        return _process.timed_thread == threading.get_ident()


def _end(now: float) -> None:
    """Counts the innermost span up to now."""
    kind, since = _process.open_spans[-1]
    with _process.lock:
        _process.file.floats[SPANS_AT + int(kind)] += now - since
