"""Counters and spans of a run, in one memory-mapped file for each rank.

Who writes: each block has one writer, the rank (block 0) or the worker that steps environment i (block 1 + i). Who
reads: the runner while the run goes on, and once more when it has ended; a reader may see a counter a step late,
never a torn one, since every word is 8 aligned bytes. Nothing blocks, so nothing must be freed; a process that dies
leaves what it had counted. The file's space is allocated when it is made, so a full disk is an error then and not a
SIGBUS later.

Layout, in words of 8 bytes: header (magic, number of environments, span capacity), then equal blocks, each: counters
(`COUNTERS`, int64 or float64), seconds for each kind of span (`SPANS`), number of spans, and the latest spans in a ring
(begin, end, kind). Totals are exact; the ring keeps the last `span_capacity` spans of each block for timelines.
Times are `time.perf_counter()`, which all processes of a machine share on Linux.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAGIC = 0x3130_4D4C_5252
HEADER_WORDS = 4
INT_COUNTERS = (
    "pid",
    "iteration",
    "learned",
    "reused",
    "discarded",
    "in_flight",
    "lag_sum",
    "lag_max",
    "env_steps",
    "frames",
    "episodes",
)
FLOAT_COUNTERS = ("step_s", "reset_s", "step_s_squared")
SPANS = (
    "other",
    "simulate",
    "infer",
    "learn",
    "communicate",
    "reset",
    "wait:straggler",
    "wait:learner",
    "wait:inference",
)
"""Kinds of spans, and the phases that a progress display shows; a span inside another pauses it."""
COUNTERS = INT_COUNTERS + FLOAT_COUNTERS
WORD_OF = {name: i for i, name in enumerate(COUNTERS)}
KIND_OF = {name: i for i, name in enumerate(SPANS)}
TOTALS_AT = len(COUNTERS)
NUM_SPANS_AT = TOTALS_AT + len(SPANS)
PHASE_AT = NUM_SPANS_AT + 1
RING_AT = PHASE_AT + 1
SPAN_CAPACITY = 4096


def meter_path(folder: Path, rank: int) -> Path:
    """The meter file of a rank."""
    return folder / f"meter-rank{rank}.bin"


class MeterFile:
    """The mapped file; `ints` and `floats` are the same words seen as int64 and float64."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        with path.open("r+b" if writable else "rb") as file:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._memory = mmap.mmap(file.fileno(), 0, access=access)
        self.ints = memoryview(self._memory).cast("q")
        self.floats = memoryview(self._memory).cast("d")
        magic, self.num_envs, self.span_capacity, _ = self.ints[:HEADER_WORDS]
        if magic != MAGIC:
            raise ValueError(f"{path}: not a meter file of this version")

    @classmethod
    def create(cls, path: Path, num_envs: int, span_capacity: int = SPAN_CAPACITY) -> MeterFile:
        """Makes the file with all counters at 0. Raises OSError when the disk has no room for it."""
        size = 8 * (HEADER_WORDS + (1 + num_envs) * (RING_AT + 3 * span_capacity))
        unfinished = path.with_name(f".{path.name}")  # no reader ever sees a meter without its header
        try:
            with unfinished.open("w+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)
                memory = mmap.mmap(file.fileno(), size)
                with memoryview(memory).cast("q") as words:
                    words[0], words[1], words[2] = MAGIC, num_envs, span_capacity
                memory.close()
            unfinished.rename(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        return cls(path, writable=True)

    def block_at(self, index: int) -> int:
        """The first word of block `index`: 0 is the rank, 1 + i the environment i."""
        return HEADER_WORDS + index * (RING_AT + 3 * self.span_capacity)

    def count(self, index: int, name: str) -> int:
        """An integer counter of a block."""
        return self.ints[self.block_at(index) + WORD_OF[name]]

    def seconds(self, index: int, name: str) -> float:
        """A float counter of a block, or the seconds spent in a kind of span."""
        at = WORD_OF[name] if name in WORD_OF else TOTALS_AT + KIND_OF[name]
        return self.floats[self.block_at(index) + at]

    def phase(self) -> str:
        """What the rank is doing: its innermost span."""
        return SPANS[self.ints[self.block_at(0) + PHASE_AT]]

    def total(self, name: str) -> int:
        """An integer counter, summed over the environments of the rank."""
        return sum(self.count(1 + i, name) for i in range(self.num_envs))

    def spans(self, index: int) -> list[tuple[float, float, str]]:
        """The latest spans of a block: begin, end (seconds), kind; oldest first."""
        block = self.block_at(index)
        written = self.ints[block + NUM_SPANS_AT]
        found = []
        for i in range(max(0, written - self.span_capacity), written):
            at = block + RING_AT + 3 * (i % self.span_capacity)
            found.append((self.floats[at], self.floats[at + 1], SPANS[self.ints[at + 2]]))
        return found


class Block:
    """One writer's block; the hot paths write words directly."""

    def __init__(self, file: MeterFile, index: int) -> None:
        self._file = file
        self._at = file.block_at(index)
        self.ints = file.ints
        self.floats = file.floats
        self.set("pid", os.getpid())

    def word(self, name: str) -> int:
        """The index of a counter in `ints` or `floats`."""
        return self._at + WORD_OF[name]

    def add(self, name: str, amount: int) -> None:
        """Adds to an integer counter."""
        self.ints[self._at + WORD_OF[name]] += amount

    def set(self, name: str, value: int) -> None:
        """Sets an integer counter."""
        self.ints[self._at + WORD_OF[name]] = value

    def get(self, name: str) -> int:
        """Reads an integer counter."""
        return self.ints[self._at + WORD_OF[name]]

    def set_phase(self, kind: int) -> None:
        """Says what the writer is doing now."""
        self.ints[self._at + PHASE_AT] = kind

    def put_span(self, kind: int, begin: float, end: float) -> None:
        """Records one span: its seconds in the total, itself in the ring."""
        at, floats, ints = self._at, self.floats, self.ints
        floats[at + TOTALS_AT + kind] += end - begin
        number = ints[at + NUM_SPANS_AT]
        slot = at + RING_AT + 3 * (number % self._file.span_capacity)
        floats[slot] = begin
        floats[slot + 1] = end
        ints[slot + 2] = kind
        ints[at + NUM_SPANS_AT] = number + 1


@dataclass(frozen=True, slots=True)
class LagSummary:
    """Policy lag (learner's version minus actor's, in optimiser steps) of some samples."""

    total: int
    largest: int


class RankMeter:
    """What a system reports on one rank; made by `harness/rank.py`."""

    def __init__(self, folder: Path, rank: int, num_envs: int, gpu_busy_s: Callable[[], float] | None = None) -> None:
        self.path = meter_path(folder, rank)
        self.rank = rank
        self._block = Block(MeterFile.create(self.path, num_envs), 0)
        self._series = (folder / f"series-rank{rank}.jsonl").open("w")
        self._open: list[tuple[int, float]] = []
        self._iteration_began = time.perf_counter()
        self._last: dict[str, int] = dict.fromkeys(("learned", "reused", "discarded", "lag_sum"), 0)
        self._last_s = dict.fromkeys(SPANS, 0.0)
        self._last_busy_s = 0.0
        self._began = self._iteration_began
        self._gpu_busy_s = gpu_busy_s

    def begin(self) -> None:
        """Starts the clock of the run: processes are up, and the first iteration begins."""
        self._began = self._iteration_began = time.perf_counter()
        self._seconds_since_last()
        if self._gpu_busy_s is not None:
            self._last_busy_s = self._gpu_busy_s()

    def _seconds_since_last(self) -> dict[str, float]:
        """Seconds in each kind of span since the last call; the span that is open counts up to now."""
        now = time.perf_counter()
        if self._open:
            kind, began = self._open[-1]
            self._block.put_span(kind, began, now)
            self._open[-1] = (kind, now)
        first = self._block.word("pid") + TOTALS_AT
        seconds = self._block.floats[first : first + len(SPANS)].tolist()
        totals: dict[str, float] = dict(zip(SPANS, seconds, strict=True))
        passed = {kind: total - self._last_s[kind] for kind, total in totals.items()}
        self._last_s = totals
        return passed

    @property
    def elapsed_s(self) -> float:
        """Seconds since `begin`."""
        return time.perf_counter() - self._began

    def learned(self, num_env_steps: int, lag: LagSummary) -> None:
        """Fresh env steps learned for the first time, and the lag at which that happened."""
        block = self._block
        block.add("learned", num_env_steps)
        block.add("lag_sum", lag.total)
        block.set("lag_max", max(block.get("lag_max"), lag.largest))

    def reused(self, num_env_steps: int) -> None:
        """Env steps learned again: further epochs, stale fill."""
        self._block.add("reused", num_env_steps)

    def discarded(self, num_env_steps: int) -> None:
        """Env steps that will never be learned."""
        self._block.add("discarded", num_env_steps)

    def in_flight(self, num_env_steps: int) -> None:
        """Env steps that were neither learned nor discarded when the run ended."""
        self._block.set("in_flight", num_env_steps)

    @property
    def num_learned(self) -> int:
        """Fresh env steps learned so far by this rank."""
        return self._block.get("learned")

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Times what happens inside; a span around it is paused meanwhile. Raises KeyError for an unknown kind."""
        number = KIND_OF[kind]
        begin = time.perf_counter()
        if self._open:
            outer, outer_began = self._open[-1]
            self._block.put_span(outer, outer_began, begin)
        self._open.append((number, begin))
        self._block.set_phase(number)
        try:
            yield
        finally:
            end = time.perf_counter()
            _, began = self._open.pop()
            self._block.put_span(number, began, end)
            if self._open:
                outer, _ = self._open[-1]
                self._open[-1] = (outer, end)
                self._block.set_phase(outer)

    def end_iteration(self, statistics: Mapping[str, float]) -> None:
        """Closes one part of the time series: what was learned in it, when, and the system's own statistics."""
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
        row.update({f"span/{kind}": seconds for kind, seconds in self._seconds_since_last().items()})
        if self._gpu_busy_s is not None:
            busy_s = self._gpu_busy_s()
            row["gpu_busy_s"] = busy_s - self._last_busy_s
            self._last_busy_s = busy_s
        row.update(statistics)
        self._series.write(json.dumps(row) + "\n")
        self._series.flush()
        block.add("iteration", 1)
        self._iteration_began = end

    def close(self) -> None:
        """Flushes the time series; counters need no flush."""
        self._series.close()
