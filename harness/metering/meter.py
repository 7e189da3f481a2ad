"""What a system reports on one rank: what became of its samples, and where its time goes.

Who writes: the rank's main thread, and one other thread if it opened a lane; each has its own timeline and its own
block of the meter file. Who reads: when an iteration ends, the main thread reads the lane as well. What blocks: each
timeline has a lock. Its thread holds it while a span begins or ends (microseconds), the main thread while it reads the
seconds so far. The seconds of the open span are not yet in a block, so they are counted up to that moment exactly once.
Counters (`updated`, `learned`, `reused`, `discarded`, `in_flight`, and those of `harness/metering/fates.py`) have no
lock: only the main thread may call them.
A process that dies leaves what it had counted.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.harness.metering.meter_file import (
    KIND_OF,
    MAY_BE_UNREPORTED,
    SPANS,
    Block,
    MeterFile,
    meter_path,
)
from rlbench.harness.processes import process

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rlbench.harness.metering.fates import FateFile, Ints

LANE_PREFIX = "sampler/"
"""Prefix of the series' columns that hold the second lane's seconds."""

SAMPLED = 7
"""The CPU time of one in so many stretches of a timeline is read, since reading it costs; a prime, so that it meets all
kinds where they alternate."""


class _Span:
    """Begins and ends a span of its kind on its lane; has no state of its own, so one for each kind is enough."""

    __slots__ = ("_kind", "_lane")

    def __init__(self, lane: Lane, kind: int) -> None:
        self._lane, self._kind = lane, kind

    def __enter__(self) -> None:
        self._lane.begin(self._kind)

    def __exit__(self, *_: object) -> None:
        self._lane.end()


class Lane:
    """The timeline of one thread: spans that never overlap. Only that thread may begin and end spans."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._lock = threading.Lock()
        self._open: list[tuple[int, float]] = []  # kind, start; the last one is running
        self._until_sample = SAMPLED
        self._cpu_s: float | None = None  # when the running span began or went on, if its CPU time is sampled
        self._last_s = [0.0] * len(SPANS)
        self._spans = {name: _Span(self, kind) for name, kind in KIND_OF.items()}

    def span(self, kind: str) -> _Span:
        """Times the code inside, while a span around it is paused. Raises KeyError for an unknown kind."""
        return self._spans[kind]

    def begin(self, kind: int) -> None:
        """Begins a span of that kind and pauses the one around it."""
        with self._lock:
            now = time.perf_counter()
            if self._open:
                outer, since = self._open[-1]
                self._block.put_span(outer, since, now)
                if self._cpu_s is not None:
                    self._sample(outer, now - since)
            self._open.append((kind, now))
            self._until_sample -= 1
            if self._until_sample == 0:
                self._begin_sample()
            self._block.set_phase(kind)

    def end(self) -> None:
        """Ends the innermost span and resumes the one around it."""
        with self._lock:
            now = time.perf_counter()
            kind, since = self._open.pop()
            self._block.put_span(kind, since, now)
            if self._cpu_s is not None:
                self._sample(kind, now - since)
            if self._open:
                outer, _ = self._open[-1]
                self._open[-1] = (outer, now)
                self._until_sample -= 1
                if self._until_sample == 0:
                    self._begin_sample()
                self._block.set_phase(outer)

    def _begin_sample(self) -> None:
        self._until_sample = SAMPLED
        self._cpu_s = time.thread_time()

    def _sample(self, kind: int, took_s: float) -> None:
        assert self._cpu_s is not None
        self._block.add_cpu(kind, time.thread_time() - self._cpu_s, took_s)
        self._cpu_s = None

    def cut(self, at: float | None = None) -> dict[str, float]:
        """Seconds in each kind of span since the last cut; always call it from the same thread.

        The open span counts up to now, or up to `at`, since when the lane's thread must not have begun or ended a span.
        """
        with self._lock:
            seconds = self._block.span_seconds()
            if self._open:
                kind, since = self._open[-1]
                seconds[kind] += (time.perf_counter() if at is None else at) - since
        passed = {kind: now - last for kind, now, last in zip(SPANS, seconds, self._last_s, strict=True)}
        self._last_s = seconds
        return passed


@dataclass(frozen=True, slots=True)
class LagSummary:
    """Sum and maximum of the policy lag of some samples (learner's version minus actor's, in optimiser steps)."""

    total: int
    largest: int


class RankMeter:
    """A system's reports on one rank; made by `harness/launch/rank.py`. All but the lane is for the main thread."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        num_envs: int,
        gpu_busy_s: Callable[[], float] | None = None,
        *,
        still: bool = False,
    ) -> None:
        self.path = meter_path(folder, rank)
        self.rank = rank
        self.still = still
        """Whether the work must not change by what is learned: a system then learns at full cost, in steps of length 0.

        The environments see to their actions themselves (`harness/metering/still.py`).
        """
        self._file = MeterFile.create(self.path, num_envs, still=still)
        self._block = Block(self._file, 0)
        self._own = Lane(self._block)
        self._lane: Lane | None = None
        self._fates: FateFile | None = None
        self._series = (folder / f"series-rank{rank}.jsonl").open("w", encoding="utf-8")
        self._iteration_began = time.perf_counter()
        self._last: dict[str, int] = dict.fromkeys(("learned", "reused", "discarded", "lag_sum"), 0)
        self._last_collected = 0
        self._last_busy_s = 0.0
        self._last_core_wait_s = process.core_wait_s()
        self._began = self._iteration_began
        self._gpu_busy_s = gpu_busy_s

    def open_lane(self) -> Lane:
        """Opens a second timeline, for one other thread of this process; its seconds have columns of their own.

        The main thread calls this and hands the lane over. Raises ValueError if there is one already.
        """
        if self._lane is not None:
            raise ValueError(f"rank {self.rank} has opened its lane already: a meter has one beside the main thread's")
        self._lane = Lane(Block(self._file, self._file.lane_index))
        return self._lane

    def open_fates(self, num_envs: int, *, first_env: int, steps_due: int = 0) -> None:
        """Has this rank also count what becomes of each environment's env steps; without this, nobody reports it.

        Args:
            num_envs: E, the environments that this rank learns from, which may be those of all ranks.
            first_env: the number of the first of them among those of the run; the others follow.
            steps_due: env steps of each environment in a whole rollout; 0 where rollouts have no fixed number of each.
        """
        from rlbench.harness.metering.fates import FateFile, fates_path

        self._fates = FateFile(fates_path(self.path.parent, self.rank), num_envs, first_env, steps_due)

    def begin(self) -> None:
        """Starts the clock of the run; call it when all processes are up and the first iteration begins."""
        self._began = self._iteration_began = time.perf_counter()
        self._last = {name: self._block.get(name) for name in self._last}
        self._last_collected = self._file.total("env_steps")
        self._seconds(self._began)
        if self._gpu_busy_s is not None:
            self._last_busy_s = self._gpu_busy_s()
        self._last_core_wait_s = process.core_wait_s()

    def _seconds(self, at: float) -> dict[str, float]:
        """The seconds of both timelines since the last call, as columns; `at` is now, for this thread's timeline."""
        columns = {f"span/{kind}": seconds for kind, seconds in self._own.cut(at).items()}
        if self._lane is not None:
            columns |= {f"{LANE_PREFIX}{kind}": seconds for kind, seconds in self._lane.cut().items()}
        return columns

    @property
    def elapsed_s(self) -> float:
        """Seconds since `begin`."""
        return time.perf_counter() - self._began

    def learned(self, num_env_steps: int, lag: LagSummary) -> None:
        """Counts env steps that were learned for the first time, with their lag."""
        block = self._block
        block.add("learned", num_env_steps)
        block.add("lag_sum", lag.total)
        block.set("lag_max", max(block.get("lag_max"), lag.largest))

    def updated(self) -> None:
        """Counts one optimiser step, which shows those that watch the run that it makes progress."""
        self._block.add("updates", 1)

    def reused(self, num_env_steps: int) -> None:
        """Counts env steps that were learned again, as in further epochs or stale fill."""
        self._block.add("reused", num_env_steps)

    def discarded(self, num_env_steps: int) -> None:
        """Counts env steps that will never be learned."""
        self._block.add("discarded", num_env_steps)

    def in_flight(self, num_env_steps: int) -> None:
        """Sets the number of env steps that were neither learned nor discarded when the run ended."""
        self._block.set("in_flight", num_env_steps)

    def settle(self, fate: int, envs: Ints, lengths: Ints) -> None:
        """Counts for each environment what `learned` or `discarded` counts in all, where `open_fates` was called.

        Args:
            fate: `LEARNED`, once for each rollout or batch, or `DISCARDED` (`harness.metering.fates`).
            envs: the environment of each sample, from 0, [S]; those of one in the order in which they were taken.
            lengths: the length of the episode that ended with the sample, in env steps; 0 where none did, [S].
        """
        if self._fates is not None:
            self._fates.settle(fate, envs, lengths)

    def left(self, num_env_steps: Ints) -> None:
        """Sets for each environment, [E], what `in_flight` sets in all, where `open_fates` was called."""
        if self._fates is not None:
            self._fates.leave(num_env_steps)

    def reports(self, names: Collection[str]) -> None:
        """Says which counters of `MAY_BE_UNREPORTED` the system reports; needed only if it does not report all."""
        bits = sum(1 << bit for bit, name in enumerate(MAY_BE_UNREPORTED) if name not in names)
        self._block.set("unreported", bits)

    @property
    def num_learned(self) -> int:
        """Fresh env steps learned so far by this rank."""
        return self._block.get("learned")

    def span(self, kind: str) -> AbstractContextManager[None]:
        """Times the code inside, while a span around it is paused. Raises KeyError for an unknown kind."""
        return self._own.span(kind)

    def end_iteration(self, statistics: Mapping[str, float], elsewhere_s: Mapping[str, float] | None = None) -> None:
        """Writes one row of the time series: when the iteration was, what it learned, and the system's own statistics.

        `elsewhere_s`: seconds by kind of span of the process that learns in place of this one. They replace this one's
        spans, and the row has no wait for cores.
        """
        end = time.perf_counter()
        block = self._block
        row: dict[str, float | int] = {
            "rank": self.rank,
            "iteration": block.get("iteration"),
            "begin_s": self._iteration_began,
            "end_s": end,
        }
        for name, before in self._last.items():
            now = block.get(name)
            row[name] = now - before
            self._last[name] = now
        collected = self._file.total("env_steps")
        row["env_steps"] = collected - self._last_collected
        self._last_collected = collected
        if elsewhere_s is None:
            row.update(self._seconds(end))
        else:
            other_s = max(0.0, end - self._iteration_began - sum(elsewhere_s.values()))
            row |= {f"span/{kind}": seconds for kind, seconds in elsewhere_s.items()} | {"span/other": other_s}
        if self._gpu_busy_s is not None:
            busy_s = self._gpu_busy_s()
            row["gpu_busy_s"] = busy_s - self._last_busy_s
            self._last_busy_s = busy_s
        waited_s = process.core_wait_s()
        if waited_s is not None and self._last_core_wait_s is not None and elsewhere_s is None:
            # The sum may fall, since the waits of a thread that has ended are no longer in it.
            row["core_wait_s"] = max(0.0, waited_s - self._last_core_wait_s)
        self._last_core_wait_s = waited_s
        row.update(statistics)
        self._series.write(json.dumps(row) + "\n")
        self._series.flush()
        block.add("iteration", 1)
        if self._fates is not None:
            self._fates.end_iteration()
        self._iteration_began = end

    def close(self) -> None:
        """Closes the time series; counters need no flush."""
        self._series.close()
