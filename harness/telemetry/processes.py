"""CPU and memory of a run's process tree, through psutil.

The tree is walked cheaply: each sample lists the pids of the machine once and asks only new ones for their parent. A
process that was seen in the tree stays in it when its parent dies. A process that is born and dies between two samples
is never seen, and the CPU time that one used after its last sample is not counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

CPU_SOURCE = "psutil, CPU time of the process tree; 100 is one core"
MEMORY_SOURCE = "psutil, private memory (resident less shared) of the process tree, summed"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSample:
    """The tree at one moment."""

    cpu_percent: float | None
    """Since the sample before; 100 is one core. None for the first."""
    memory_bytes: int
    """Private memory: resident less shared, summed, so that a buffer in shared memory is not counted once a process."""
    num_processes: int


class ProcessSampler:
    """Samples the process `pid` and all its descendants; make it in the thread that samples."""

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._tree: dict[int, psutil.Process] = {}
        self._strangers: set[int] = set()
        self._cpu_s: dict[int, float] = {}
        self._sampled_s: float | None = None

    def sample(self) -> ProcessSample:
        """Reads the whole tree. A tree that has ended is one of 0 processes."""
        self._walk()
        now_s = time.perf_counter()
        cpu_s: dict[int, float] = {}
        memory_bytes = 0
        for pid, process in self._tree.items():
            try:
                times, memory = process.cpu_times(), process.memory_info()
            except psutil.Error:  # it ended since the list was read
                continue
            cpu_s[pid] = times.user + times.system
            memory_bytes += max(memory.rss - memory.shared, 0)
        used_s = sum(seconds - self._cpu_s.get(pid, 0.0) for pid, seconds in cpu_s.items())
        first = self._sampled_s is None
        elapsed_s = now_s - (self._sampled_s or 0.0)
        self._cpu_s, self._sampled_s = cpu_s, now_s
        return ProcessSample(
            cpu_percent=None if first else 100 * max(used_s, 0.0) / elapsed_s,
            memory_bytes=memory_bytes,
            num_processes=len(cpu_s),
        )

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
