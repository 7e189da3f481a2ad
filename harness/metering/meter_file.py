"""The file of a rank's counters and spans, mapped into memory; `harness/metering/meter.py` says what a rank reports.

Who writes: each block has one writer: the rank's main thread (block 0), the process that steps environment i
(block 1 + i; `harness/metering/blocks.py` writes those of a batch), or the rank's second thread (the last block, see
`RankMeter.open_lane`). Who reads: runner and keeper while the run goes on, and the runner once more when it has ended.
A reader may see a counter a step late but never a torn one, since every word is 8 aligned bytes. Nothing blocks. A
process that dies leaves what it had counted. The file's space is allocated when it is made, so a full disk is an error
then and not a SIGBUS later.

An environment with several agents (`harness/contract/agents.py`) has a block for each of them, whose `env_steps` and
`episodes` are the agent's: its agent steps, its stays. The first one's block has the `frames` of the environment, and
its env steps as `joint_steps`; these are 0 where environments have one agent.

Layout, in words of 8 bytes: header (magic, number of environments, span capacity of each, that of a thread, whether
the work is still), then the blocks. They are equal but for their rings, of which threads may have larger ones than
environments. A block has counters (`COUNTERS`, int64 or float64), seconds for each kind of span (`SPANS`), CPU time in
some of them and their time, number of spans, the current phase, and a ring of the latest spans (begin, end, kind).
Totals are exact; for timelines, the ring keeps the latest `span_capacity` spans. It has one more place, for the span
that is being written; readers skip that, since a killed process may have left it half done. Times are
`time.perf_counter()`, which all processes of a machine share on Linux.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

MAGIC = 0x3830_4D4C_5252
HEADER_WORDS = 5
INT_COUNTERS = (
    "pid",
    "iteration",
    "updates",
    "learned",
    "reused",
    "discarded",
    "in_flight",
    "lag_sum",
    "lag_max",
    "unreported",
    "env_steps",
    "frames",
    "episodes",
    "joint_steps",
)
MAY_BE_UNREPORTED = ("learned", "reused", "discarded", "in_flight", "lag_sum")
"""Counters that somebody else's system need not report; each has a bit in `unreported`, which is 0 for our systems."""
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
    "wait:rollout",
    "schedule",
)
"""Kinds of spans, which are also the phases that a progress display shows; a span inside another pauses it."""
COUNTERS = INT_COUNTERS + FLOAT_COUNTERS
WORD_OF = {name: i for i, name in enumerate(COUNTERS)}
KIND_OF = {name: i for i, name in enumerate(SPANS)}
TOTALS_AT = len(COUNTERS)
CPU_AT = TOTALS_AT + len(SPANS)
CPU_OF_AT = CPU_AT + len(SPANS)
NUM_SPANS_AT = CPU_OF_AT + len(SPANS)
PHASE_AT = NUM_SPANS_AT + 1
RING_AT = PHASE_AT + 1
SPAN_CAPACITY = 4096
"""Spans that are kept of a thread; `env_span_capacity` says how many of an environment."""
MOST_ENV_SPANS = 64 * SPAN_CAPACITY
"""Spans that are kept of all environments of a rank, at most; 6 MiB."""


def env_span_capacity(num_envs: int) -> int:
    """Spans that are kept of each environment: `SPAN_CAPACITY`, or fewer where a rank has more than 64 environments."""
    return max(1, MOST_ENV_SPANS // max(64, num_envs))


def _block_words(span_capacity: int) -> int:
    return RING_AT + 3 * (span_capacity + 1)


def meter_path(folder: Path, rank: int) -> Path:
    """The meter file of a rank."""
    return folder / f"meter-rank{rank}.bin"


class MeterFile:
    """The mapped file; `ints` and `floats` view the same words as int64 and float64."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        with path.open("r+b" if writable else "rb") as file:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._memory = mmap.mmap(file.fileno(), 0, access=access)
        self.ints = memoryview(self._memory).cast("q")
        self.floats = memoryview(self._memory).cast("d")
        magic, self.num_envs, self._env_capacity, self._thread_capacity, still = self.ints[:HEADER_WORDS]
        self.still = bool(still)
        if magic != MAGIC:
            raise ValueError(f"{path}: not a meter file of this version")

    @classmethod
    def create(cls, path: Path, num_envs: int, span_capacity: int | None = None, *, still: bool = False) -> MeterFile:
        """Makes the file with all counters at 0; `span_capacity` is then that of every block.

        `still`: whether its environments do still work (`harness/metering/still.py`). Raises OSError if the disk has no
        room for it.
        """
        of_env, of_thread = span_capacity or env_span_capacity(num_envs), span_capacity or SPAN_CAPACITY
        size = 8 * (HEADER_WORDS + num_envs * _block_words(of_env) + 2 * _block_words(of_thread))
        unfinished = path.with_name(f".{path.name}")  # no reader ever sees a meter without its header
        try:
            with unfinished.open("w+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)
                memory = mmap.mmap(file.fileno(), size)
                with memoryview(memory).cast("q") as words:
                    words[0], words[1], words[2], words[3], words[4] = MAGIC, num_envs, of_env, of_thread, still
                memory.close()
            unfinished.rename(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        return cls(path, writable=True)

    def close(self) -> None:
        """Unmaps the file and so frees its descriptor; nothing can be read afterwards."""
        self.ints.release()
        self.floats.release()
        self._memory.close()

    def block_at(self, index: int) -> int:
        """The first word of block `index`: 0 is the rank's, 1 + i environment i's, `lane_index` the second thread's."""
        if index == 0:
            return HEADER_WORDS
        return HEADER_WORDS + _block_words(self._thread_capacity) + (index - 1) * _block_words(self._env_capacity)

    def span_capacity(self, index: int) -> int:
        """How many spans are kept of a block."""
        return self._env_capacity if 0 < index < self.lane_index else self._thread_capacity

    @property
    def lane_index(self) -> int:
        """Index of the block of the rank's second thread."""
        return 1 + self.num_envs

    def count(self, index: int, name: str) -> int:
        """An integer counter of a block."""
        return self.ints[self.block_at(index) + WORD_OF[name]]

    def seconds(self, index: int, name: str) -> float:
        """A float counter of a block, or the seconds spent in a kind of span."""
        at = WORD_OF[name] if name in WORD_OF else TOTALS_AT + KIND_OF[name]
        return self.floats[self.block_at(index) + at]

    def cpu_seconds(self, index: int, kind: str) -> tuple[float, float]:
        """CPU time in a kind of span of a block, and the time of the spans in which it was read."""
        at = self.block_at(index) + KIND_OF[kind]
        return self.floats[at + CPU_AT], self.floats[at + CPU_OF_AT]

    def is_reported(self, name: str) -> bool:
        """Whether the system reports a counter of `MAY_BE_UNREPORTED`."""
        return not self.count(0, "unreported") >> MAY_BE_UNREPORTED.index(name) & 1

    def phase(self, index: int = 0) -> str:
        """The innermost span of a block: what the rank or its second thread is doing."""
        return SPANS[self.ints[self.block_at(index) + PHASE_AT]]

    def total(self, name: str) -> int:
        """An integer counter, summed over the environments of the rank."""
        first, stride = self.block_at(1) + WORD_OF[name], self.block_at(2) - self.block_at(1)
        return sum(self.ints[first : first + stride * self.num_envs : stride])

    def spans(self, index: int) -> list[tuple[float, float, str]]:
        """The latest spans of a block, oldest first: begin, end (seconds), kind.

        Spans that the writer overwrites meanwhile are left out.
        """
        block, capacity = self.block_at(index), self.span_capacity(index)
        written = self.ints[block + NUM_SPANS_AT]
        first = max(0, written - capacity)
        found = []
        for number in range(first, written):
            at = block + RING_AT + 3 * (number % (capacity + 1))
            found.append((self.floats[at], self.floats[at + 1], SPANS[self.ints[at + 2]]))
        now_kept_from = self.ints[block + NUM_SPANS_AT] - capacity
        return found[max(0, now_kept_from - first) :]


class MeterFiles:
    """The meters of a run's ranks, for a reader; opens each one once it is there."""

    def __init__(self, folder: Path, ranks: range) -> None:
        self.ranks = ranks
        self._missing = {rank: meter_path(folder, rank) for rank in ranks}
        self._files: dict[int, MeterFile] = {}

    def there(self) -> dict[int, MeterFile]:
        """The meters of the ranks that have started."""
        for rank, path in list(self._missing.items()):
            if path.exists():
                self._files[rank] = MeterFile(path, writable=False)
                del self._missing[rank]
        return self._files

    def close(self) -> None:
        """Unmaps all meters."""
        for file in self._files.values():
            file.close()


class Block:
    """One writer's block; the hot paths write words directly."""

    def __init__(self, file: MeterFile, index: int) -> None:
        self._at = file.block_at(index)
        self._num_places = file.span_capacity(index) + 1
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
        """Sets what the writer is doing now."""
        self.ints[self._at + PHASE_AT] = kind

    def span_seconds(self) -> list[float]:
        """Seconds in ended spans of each kind, in the order of `SPANS`."""
        first = self._at + TOTALS_AT
        return list(self.floats[first : first + len(SPANS)])

    def add_cpu(self, kind: int, used_s: float, took_s: float) -> None:
        """Adds CPU time to that of a kind of span, and the time in which it was used."""
        self.floats[self._at + CPU_AT + kind] += used_s
        self.floats[self._at + CPU_OF_AT + kind] += took_s

    def put_span(self, kind: int, begin: float, end: float) -> None:
        """Records one span: adds its seconds to the total, and the span to the ring."""
        at, floats, ints = self._at, self.floats, self.ints
        floats[at + TOTALS_AT + kind] += end - begin
        number = ints[at + NUM_SPANS_AT]
        slot = at + RING_AT + 3 * (number % self._num_places)
        floats[slot] = begin
        floats[slot + 1] = end
        ints[slot + 2] = kind
        ints[at + NUM_SPANS_AT] = number + 1
