"""Moves what a trainer's processes count in files into the meter of a rank.

The trainer's processes write their files (`rlbench_client/counters.py`), and this rank writes its meter. Nothing
blocks. Every rank reads the files of all ranks, because the budget is for all, and moves its own into its meter. It
checks every file: no counter is negative or above `MOST`, and none but those in `MAY_FALL` ever falls.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rlbench.harness.metering.counted import EPISODE as RECORD
from rlbench.harness.metering.counted import episodes_path
from rlbench.harness.metering.meter import LagSummary, RankMeter
from rlbench.harness.metering.meter_file import KIND_OF, TOTALS_AT, Block, MeterFile
from rlbench_client.counters import (
    AT,
    EPISODE,
    EPISODES_AT,
    FLOATS,
    INTS,
    MAGIC,
    NUM_EPISODES,
    REPORTED,
    SIZE,
    SPANS,
    SPANS_AT,
    SUFFIX,
)

MOST = 2**53
"""The largest value that a counter or a sum of seconds may have."""
MOST_FILES = 65_536
NUM_LAST_EPISODES = 100
"""A metric is the mean over at most this many of the latest episodes."""
MAY_FALL = {"in_flight", "reported"}
WAIT_S = "wait_s"
"""An environment's time from its first reset or step to its latest answer, without its steps and resets."""
ENV_SECONDS = {"simulate": "step_s", "reset": "reset_s", "wait:inference": WAIT_S}
"""The counter that holds the seconds of each kind of span in an environment's timeline."""


class BadCounters(ValueError):  # noqa: N818  says what is the case
    """A file of counters that cannot be right."""


@dataclass
class Seen:
    """What has been read from one file so far."""

    path: Path
    rank: int
    num_envs: int
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(INTS, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*FLOATS, *SPANS, WAIT_S), 0.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What has changed in a file since it was last read."""

    file: Seen
    counts: Mapping[str, int]
    seconds: Mapping[str, float]
    episodes: list[tuple[float, ...]]
    """The new ones that can still be read, each in the order of `EPISODE`."""


class CounterFiles:
    """The counter files of all processes of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, Seen] = {}
        self.last_episodes: deque[tuple[float, ...]] = deque(maxlen=NUM_LAST_EPISODES)

    def look(self) -> list[Change]:
        """Returns what has changed in each file. Raises BadCounters."""
        names = [entry.name for entry in os.scandir(self._folder) if entry.name.endswith(SUFFIX)]
        if len(names) > MOST_FILES:
            raise BadCounters(f"{len(names):,} files of counters: at most {MOST_FILES:,}; an environment is made once")
        changes = [self._read(name) for name in sorted(names)]
        self.last_episodes.extend(sorted(episode for change in changes for episode in change.episodes))
        return changes

    def total(self, name: str) -> int:
        """A counter, summed over all files."""
        return sum(seen.counts[name] for seen in self._seen.values())

    def is_reported(self, name: str) -> bool:
        """Whether a process has reported one of `REPORTED`."""
        return any(seen.counts["reported"] >> REPORTED.index(name) & 1 for seen in self._seen.values())

    @property
    def iterations(self) -> int:
        """Iterations of the process that has reported most; each rank reports its own."""
        return max((seen.counts["iterations"] for seen in self._seen.values()), default=0)

    def metrics(self) -> dict[str, float]:
        """Means of `return`, `length`, `success` and `spl` over the last episodes, as far as they are known."""
        means = {}
        for name in ("return", "length", "success", "spl"):
            at = EPISODE.index(name)
            values = [episode[at] for episode in self.last_episodes if math.isfinite(episode[at])]
            if values:
                means[name] = sum(values) / len(values)
        return means

    def _read(self, name: str) -> Change:
        path = self._folder / name
        before = self._seen[name].counts["episodes"] if name in self._seen else 0
        ints, floats, episodes = _words(path, before)
        if ints[AT["magic"]] != MAGIC:
            raise BadCounters(f"{name}: is no file of counters of this version of rlbench_client")
        if name not in self._seen:
            self._seen[name] = Seen(path=path, rank=ints[AT["rank"]], num_envs=ints[AT["num_envs"]])
        seen = self._seen[name]
        counts = {each: ints[AT[each]] for each in INTS}
        seconds = {each: floats[AT[each]] for each in FLOATS}
        seconds |= {each: floats[SPANS_AT + at] for at, each in enumerate(SPANS)}
        for each, value in (*counts.items(), *seconds.items()):
            last = seen.counts.get(each, seen.seconds.get(each, 0))
            if not 0 <= value <= MOST:  # true for NaN too
                raise BadCounters(f"{name}: {each}={value}: must be from 0 to {MOST:,}; something else wrote there")
            if value < last and each not in MAY_FALL:
                raise BadCounters(f"{name}: {each} went back from {last} to {value}: a counter never falls")
        for episode in episodes:
            _check_episode(name, dict(zip(EPISODE, episode, strict=True)))
        waited_s = seconds["answered_at"] - seconds["began_at"] - seconds["step_s"] - seconds["reset_s"]
        seconds[WAIT_S] = max(seen.seconds[WAIT_S], waited_s)  # the writer may be halfway through an update
        change = Change(
            file=seen,
            counts={each: value - seen.counts[each] for each, value in counts.items()},
            seconds={each: value - seen.seconds[each] for each, value in seconds.items()},
            episodes=episodes,
        )
        seen.counts, seen.seconds = counts, seconds
        return change


def _check_episode(name: str, episode: Mapping[str, float]) -> None:
    for each in ("length", "frames"):
        if not 0 <= episode[each] <= MOST:
            raise BadCounters(f"{name}: an episode has {each}={episode[each]}: must be from 0 to {MOST:,}")
    for each in ("success", "spl"):
        if not (0 <= episode[each] <= 1 or math.isnan(episode[each])):
            raise BadCounters(f"{name}: an episode has {each}={episode[each]}: must be from 0 to 1, or NaN")


def _words(path: Path, num_episodes: int) -> tuple[list[int], list[float], list[tuple[float, ...]]]:
    """The words of a file as int64 and as float64, and the episodes after the first `num_episodes` that it still has.

    Raises BadCounters if the file cannot be read, is no regular file or has the wrong size.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_size != SIZE:
                raise BadCounters(f"{path.name}: is no file of counters: it has {about.st_size:,} bytes, not {SIZE:,}")
            with (
                mmap.mmap(descriptor, SIZE, access=mmap.ACCESS_READ) as memory,
                memoryview(memory) as view,
                view.cast("q") as ints,
                view.cast("d") as floats,
            ):
                numbers, seconds = ints[:EPISODES_AT].tolist(), list(floats[:EPISODES_AT])
                return numbers, seconds, _episodes(floats, num_episodes, numbers[AT["episodes"]])
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BadCounters(f"{path.name}: cannot be read: {error.strerror}") from None


def _episodes(floats: memoryview[float], before: int, now: int) -> list[tuple[float, ...]]:
    width, places = len(EPISODE), NUM_EPISODES + 1
    first = max(before, now - NUM_EPISODES)
    starts = (EPISODES_AT + width * (number % places) for number in range(first, now))
    return [tuple(floats[at : at + width]) for at in starts]


class Relay:
    """Moves what the files of one rank say into its meter."""

    def __init__(self, meter: RankMeter, folder: Path, num_ranks: int) -> None:
        self._meter, self._num_ranks = meter, num_ranks
        file = MeterFile(meter.path, writable=True)
        self._blocks = [Block(file, 1 + env) for env in range(file.num_envs)]
        self._block_of: dict[Path, tuple[Block, int]] = {}
        self._episodes_fd = os.open(
            episodes_path(folder, meter.rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        self._timed: Path | None = None
        self.span_s: dict[str, float] = {}
        """Seconds by kind of span that are in no row of the series yet."""
        self.env_steps = 0
        """Env steps that are in no row of the series yet."""
        self.in_flight = 0
        """Samples in flight: the sum of what each process of the rank reported last."""

    def move(self, changes: list[Change]) -> None:
        """Adds the changes in this rank's files to its meter."""
        for change in changes:
            if self.is_own(change):
                self._move(change)

    def is_own(self, change: Change) -> bool:
        """Whether a file counts for this rank; a file without a valid rank counts for rank 0."""
        return self._meter.rank == (change.file.rank if 0 <= change.file.rank < self._num_ranks else 0)

    def _move(self, change: Change) -> None:
        counts, meter = change.counts, self._meter
        if change.file.num_envs:
            self._move_env(change)
        meter.learned(counts["learned"], LagSummary(counts["lag_sum"], change.file.counts["lag_max"]))
        meter.reused(counts["reused"])
        meter.discarded(counts["discarded"])
        self.in_flight += counts["in_flight"]
        self.env_steps += counts["env_steps"]
        spans = {kind: change.seconds[kind] for kind in SPANS if change.seconds[kind]}
        if spans and self._timed in {None, change.file.path}:  # one process's alone, so that they add up to its time
            self._timed = change.file.path
            for kind, seconds in spans.items():
                self.span_s[kind] = self.span_s.get(kind, 0.0) + seconds

    def _move_env(self, change: Change) -> None:
        """Adds an environment's counts to its block; if there are more environments than blocks, they share blocks."""
        block, env = self._block_of.setdefault(
            change.file.path, (self._blocks[len(self._block_of) % len(self._blocks)], len(self._block_of))
        )
        for name in ("env_steps", "frames", "episodes"):
            block.add(name, change.counts[name])
        for name in ("step_s", "reset_s"):
            block.floats[block.word(name)] += change.seconds[name]
        totals = block.word("pid") + TOTALS_AT
        for kind, name in ENV_SECONDS.items():
            block.floats[totals + KIND_OF[kind]] += change.seconds[name]
        number = self._meter.rank * len(self._blocks) + env
        for end_s, gain, length, frames, success, spl in change.episodes:
            os.write(self._episodes_fd, RECORD.pack(number, end_s, gain, int(length), int(frames), success, spl))

    def take_spans(self, most_s: float) -> dict[str, float]:
        """Takes the seconds by kind of span for a row of `most_s` seconds; what exceeds it stays for the next row."""
        taken = {}
        for kind, seconds in self.span_s.items():
            taken[kind] = min(seconds, most_s)
            most_s -= taken[kind]
            self.span_s[kind] = seconds - taken[kind]
        return taken

    def close(self) -> None:
        """Closes the file of episodes."""
        with suppress(OSError):
            os.close(self._episodes_fd)
