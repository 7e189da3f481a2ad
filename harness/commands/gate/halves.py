"""Two runs at once, each on half of the cores, which they exchange many times a second.

What slows the machine down for a while slows both, and cancels in their ratio (duet benchmarking: Bulej et al., Duet
benchmarking: improving measurement accuracy in the cloud, arXiv 2001.05811). Other tenants of a host slow down single
cores, for fractions of a second. So each core is each run's for half of any such moment. A run finds as many cores as
its half has, and starts as many threads.

One process, the gate's, changes the cores of all threads of both runs, by their place in the half: a thread that a run
has bound to its first core is on the first core of the other half then. Every second it looks for threads that began.
Nothing blocks but the wait for the next exchange, which ends when a run ends; when the gate dies, the runs stay where
they are.

Between the first thread that moves and the last, some of both runs are on the same cores. So we run before all other
processes meanwhile (a real-time priority), where that is permitted. Otherwise we wait for a core that the runs keep
busy: one exchange in a hundred took 95 ms, and 1 ms with the priority. So we exchange every second only.
"""

from __future__ import annotations

import itertools
import math
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from rlbench.harness.devices.kinds import choose_device
from rlbench.harness.processes.priority import before_others

Halves = tuple[tuple[int, ...], tuple[int, ...]]
"""Numbers of cores, as many in both."""
SWAP_S = 0.02
"""Seconds from one exchange to the next, for a gate that runs before other processes."""
QUEUED_SWAP_S = 1.0
"""For one that waits for its turn."""
MOST_SHARE = 0.05
"""Of the time, for exchanges: with many threads there are fewer."""
LOOK_S = 1.0
"""Seconds from one look for threads to the next."""


def halves_of(cores: Sequence[int], device: str | None) -> Halves | None:
    """Two halves of the cores; None for one core, and for GPUs, which two runs would have to share.

    Raises ValueError for an unknown device.
    """
    half = len(cores) // 2
    if not half or choose_device(device) == "cuda":
        return None
    return tuple(cores[:half]), tuple(cores[half : 2 * half])


@contextmanager
def on_cores(cores: Sequence[int] | None) -> Iterator[None]:
    """What is started within is on these cores; on all that we have for None."""
    ours = os.sched_getaffinity(0)
    try:
        if cores is not None:
            os.sched_setaffinity(0, cores)
        yield
    finally:
        os.sched_setaffinity(0, ours)


def swap_until_one_ends(runs: Sequence[subprocess.Popen[bytes] | subprocess.Popen[str]], halves: Halves) -> None:
    """Exchanges the cores of two runs, of which the first was started on the first half, until one has ended."""
    with ExitStack() as stack:
        ends = [os.pidfd_open(run.pid) for run in runs]
        for end in ends:
            stack.callback(os.close, end)
        pause_s = least_s = SWAP_S if stack.enter_context(before_others()) else QUEUED_SWAP_S
        threads: list[list[int]] = []
        looked = -math.inf
        for turn in itertools.count():
            if select.select(ends, [], [], pause_s)[0]:
                return
            if time.monotonic() - looked > LOOK_S:
                threads, looked = [_threads(run.pid) for run in runs], time.monotonic()
            began = time.monotonic()
            halves = halves[::-1]
            # Each is the first to move as often as the other, to either half.
            for of_run, half in list(zip(threads, halves, strict=True))[:: 1 if turn % 4 < 2 else -1]:
                _move(of_run, halves, half)
            pause_s = max(least_s, (time.monotonic() - began) / MOST_SHARE)


def _threads(pid: int) -> list[int]:
    """All threads of a process and of those below it; whoever ends meanwhile is left out."""
    found: list[int] = []
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(FileNotFoundError, ProcessLookupError):
                found += [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
    return found


def _move(threads: Sequence[int], halves: Halves, half: Sequence[int]) -> None:
    """Moves threads to a half, each to its place in it; those that have ended are left out."""
    places = {core: half[place] for cores in halves for place, core in enumerate(cores)}
    for thread in threads:
        with suppress(ProcessLookupError):
            bound = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, {places.get(core, core) for core in bound})
