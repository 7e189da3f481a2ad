"""What the keeper checks while nothing happens: whether a run gets on, and how much memory it takes.

The ranks and their workers write their meters, and the kernel its own counts; the keeper alone reads. Nothing blocks.

A rank makes progress when one of its counters moves: iterations, env steps, samples learned, reused or discarded,
optimiser steps. A process that waits for ever, or spins, moves none; the death of a process needs no check, since the
kernel tells. Memory is what the run's processes have for themselves
(`harness/machine/telemetry/private_memory.py`), so that what they share counts once.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from rlbench.harness.machine.cgroup import read_limits
from rlbench.harness.machine.telemetry.private_memory import most_private_bytes, private_bytes
from rlbench.harness.run.stacks import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from rlbench.harness.metering.meter_file import MeterFile, MeterFiles

LOOK_S = 1.0
MEMORY_EVERY = 3
"""The keeper checks memory once in this many looks: to ask the kernel for all processes costs milliseconds."""
STALL_FACTOR = 5
"""A rank may stand still for this many times as long as an environment (`--stall`): learning may outlast a step."""
SHORTEST_START_S = 60.0
"""Least seconds that a rank has to its first step: it takes long to start its processes on a busy machine."""
MEMORY_SHARE = 0.9
"""Default limit, as a share of the machine's or control group's memory; beyond all of it the kernel kills processes."""
GIB = 2**30
RANK_COUNTERS = ("iteration", "learned", "reused", "discarded", "updates")
OF_LEARNING = ("learned", "reused", "updates")
LONGEST_GAPS = 10
"""A rank that steps must learn again within this many times the longest gap in its learning so far."""
OOM_SCORE = 500
"""`oom_score_adj` of a run's processes: when memory is short, the kernel ends one of them before anybody else's."""


def counted(meter: MeterFile) -> int:
    """The sum of a rank's counters, which changes whenever one of them moves."""
    return sum(meter.count(0, name) for name in RANK_COUNTERS) + meter.total("env_steps")


@dataclass(slots=True)
class LearningPace:
    """When a rank learned last, and how long it may take to do so again."""

    since: float
    longest_s: float = 0.0
    count: int = 0

    def look(self, count: int, now: float) -> None:
        """Takes what the rank has learned by now, and the time."""
        if count != self.count:
            self.longest_s = max(self.longest_s, LONGEST_GAPS * (now - self.since))
            self.count, self.since = count, now


class Stalls:
    """Since when each rank has stood still."""

    def __init__(self, meters: MeterFiles, stall_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = STALL_FACTOR * stall_s
        self._start_limit_s = max(self.limit_s, SHORTEST_START_S)
        self._meters, self._now = meters, now
        self._counted = dict.fromkeys(meters.ranks, 0)
        self._moved_at = dict.fromkeys(meters.ranks, now())
        self._learning: dict[int, LearningPace] = {}

    def look(self) -> None:
        """Reads the meters."""
        now = self._now()
        for rank, meter in self._meters.there().items():
            if (number := counted(meter)) != self._counted[rank]:
                self._counted[rank], self._moved_at[rank] = number, now
            if learned := sum(meter.count(0, name) for name in OF_LEARNING):
                self._learning.setdefault(rank, LearningPace(since=now)).look(learned, now)

    def has_begun(self) -> bool:
        """Whether every rank has counted something; until then ranks wait for each other, even if not later."""
        self.look()
        return all(self._counted.values())

    def stalled(self) -> list[int]:
        """Ranks that have stood still for too long."""
        now = self._now()
        limits = {rank: self.limit_s if number else self._start_limit_s for rank, number in self._counted.items()}
        return [rank for rank, at in self._moved_at.items() if now - at > limits[rank]]

    def learned_nothing_s(self, ranks: Collection[int]) -> float:
        """Seconds for which none of the ranks that learn has learned, though one still steps; 0 while not too long.

        Ranks that stand still are left to `stalled`.
        """
        now = self._now()
        gaps = {rank: now - self._learning[rank].since for rank in ranks if rank in self._learning}
        too_long = all(gap > max(self.limit_s, self._learning[rank].longest_s) for rank, gap in gaps.items())
        steps = any(now - self._moved_at[rank] < gap / 2 for rank, gap in gaps.items())
        return min(gaps.values()) if gaps and too_long and steps else 0.0

    def stood_still_s(self, ranks: Collection[int]) -> float:
        """Seconds for which all of these ranks have stood still."""
        return self._now() - max(self._moved_at[rank] for rank in ranks)


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """How much private memory the processes of a run may have together."""

    limit_bytes: int
    is_asked_for: bool
    """Whether `--memory-limit` set it; else it is `MEMORY_SHARE` of what there is."""

    @classmethod
    def of(cls, limit_bytes: int | None) -> Memory:
        """The limit that was asked for, or the default."""
        if limit_bytes is not None:
            return cls(limit_bytes=limit_bytes, is_asked_for=True)
        total = psutil.virtual_memory().total
        usable = min(total, read_limits().memory_bytes or total)
        return cls(limit_bytes=int(MEMORY_SHARE * usable), is_asked_for=False)

    def exceeded(self, labels: Callable[[], Mapping[int, str]]) -> str | None:
        """Why the run must end, if it takes more; names the largest process. Call it in the root of the run."""
        below = psutil.Process().children(recursive=True)
        if sum(_measured(below, most_private_bytes).values()) <= self.limit_bytes:
            return None
        taken = _measured(below, private_bytes)
        total = sum(taken.values())
        if total <= self.limit_bytes:
            return None
        largest = max(taken, key=lambda one: taken[one])
        name = labels().get(largest.pid)
        said = in_words(name) if name else _name(largest)
        rule = "--memory-limit" if self.is_asked_for else f"{100 * MEMORY_SHARE:.0f} % of the machine's, --memory-limit"
        return (
            f"the run's processes took {total / GIB:.2f} GiB of memory, more than {self.limit_bytes / GIB:.2f} GiB "
            f"({rule}); {said} had {taken[largest] / GIB:.2f} GiB"
        )


def _measured(
    processes: Iterable[psutil.Process], measure: Callable[[psutil.Process], int]
) -> dict[psutil.Process, int]:
    taken = {}
    for one in processes:
        with suppress(psutil.Error):  # it has ended
            taken[one] = measure(one)
    return taken


class OutOfMemory:
    """Whether the kernel has ended processes of this machine for lack of memory since this was made."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = self._count()

    def happened(self) -> bool:
        """Whether the kernel has ended one since."""
        return self._count() > self._before

    def _count(self) -> int:
        """The count of the whole machine, since not every container can see that of its control group."""
        with suppress(OSError, ValueError):
            for line in (self._root / "proc/vmstat").read_text(encoding="utf-8").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0


def be_ended_first() -> None:
    """Has the kernel end this process, or one that it starts, before anybody else's when memory is short."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="utf-8")


def _name(one: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{one.name()} ({one.pid})"
    return str(one.pid)
