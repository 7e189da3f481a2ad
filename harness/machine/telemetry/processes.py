"""CPU and memory of a run's process tree, through psutil.

Walking the tree is cheap: each sample lists the machine's pids once and asks only new ones for their parent. A process
that was seen in the tree stays in it when its parent dies. A process that starts and ends between two samples is never
seen, and the CPU time of a process after its last sample is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

import psutil

from rlbench.harness.machine.telemetry.private_memory import most_private_bytes, private_bytes

CPU_SOURCE = "psutil, CPU time of the process tree; 100 is one core"
MEMORY_SOURCE = "the kernel's proportional set size of the anonymous memory of the process tree, summed"
MOST_READ, READ_SHARE = 16, 0.01
"""Limits of how many processes' memory is read again in a sample, in turn. `MOST_READ` holds after processes have come
or gone, which changes what the others share; otherwise the reads may take `READ_SHARE` of the time between samples. The
kernel needs milliseconds for each, on a core that the run would use."""
GREW_BYTES = 4 * 2**20
"""A process whose memory has grown or shrunk by more than this since it was read is read again out of turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSample:
    """The tree at one moment."""

    cpu_percent: float | None
    """Since the previous sample; 100 is one core. None for the first."""
    memory_bytes: int
    """Private memory (`harness/machine/telemetry/private_memory.py`), summed; pages that processes share count once."""
    num_processes: int


@dataclass(frozen=True, slots=True)
class _Memory:
    """The memory of a process when it was last read."""

    private_bytes: int
    bound_bytes: int
    """An upper bound of it, which is read in microseconds."""


class ProcessSampler:
    """Samples the process `pid` and all its descendants; make it in the thread that samples."""

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._tree: dict[int, psutil.Process] = {}
        self._strangers: set[int] = set()
        self._cpu_s: dict[int, float] = {}
        self._memory: dict[int, _Memory] = {}
        """The memory of each process of the tree, in the order of the reads, oldest first."""
        self._sampled_s: float | None = None

    def sample(self) -> ProcessSample:
        """Reads the whole tree. A tree that has ended gives 0 processes."""
        self._walk()
        now_s = time.perf_counter()
        cpu_s: dict[int, float] = {}
        for pid, process in self._tree.items():
            try:
                times = process.cpu_times()
            except psutil.Error:  # it has ended since the list was read
                continue
            cpu_s[pid] = times.user + times.system
        used_s = sum(seconds - self._cpu_s.get(pid, 0.0) for pid, seconds in cpu_s.items())
        first = self._sampled_s is None
        elapsed_s = now_s - (self._sampled_s or 0.0)
        self._cpu_s, self._sampled_s = cpu_s, now_s
        return ProcessSample(
            cpu_percent=None if first else 100 * max(used_s, 0.0) / elapsed_s,
            memory_bytes=self._read_memory(cpu_s.keys(), READ_SHARE * elapsed_s),
            num_processes=len(cpu_s),
        )

    def _read_memory(self, pids: AbstractSet[int], budget_s: float) -> int:
        """Sums the memory of these processes: current for new and changed ones, from an earlier read for the others."""
        until_s = time.thread_time() + budget_s
        came_or_went = pids != self._memory.keys()
        known = [pid for pid in self._memory if pid in pids]
        kept, read = dict[int, _Memory](), dict[int, _Memory]()
        for number, pid in enumerate([*known, *(pids - set(known))]):
            last = self._memory.get(pid)
            with suppress(psutil.Error):  # it has ended meanwhile
                bound = most_private_bytes(self._tree[pid])
                in_turn = number < MOST_READ if came_or_went else number == 0 or time.thread_time() < until_s
                if last is None or in_turn or abs(bound - last.bound_bytes) > GREW_BYTES:
                    read[pid] = _Memory(private_bytes(self._tree[pid]), bound)
                else:
                    kept[pid] = last
        self._memory = kept | read
        return sum(memory.private_bytes for memory in self._memory.values())

    def _walk(self) -> None:
        """Brings the tree up to date."""
        pids = set(psutil.pids())
        self._strangers &= pids
        for pid in self._tree.keys() - pids:
            del self._tree[pid]
        unknown = {}
        for pid in pids - self._strangers - self._tree.keys():
            try:
                process = psutil.Process(pid)
                unknown[pid] = (process, process.ppid())
            except psutil.Error:
                continue
        grown = True
        while grown:
            ours = [pid for pid, (_, parent) in unknown.items() if pid == self._root or parent in self._tree]
            for pid in ours:
                self._tree[pid] = unknown.pop(pid)[0]
            grown = bool(ours)
        self._strangers |= unknown.keys()
