"""Two runs at once, each on half of the cores, which they exchange every second.

What slows the machine down for a while slows both, and cancels in their ratio (duet benchmarking: Bulej et al., Duet
benchmarking: improving measurement accuracy in the cloud, arXiv 2001.05811). A core that is slower than the other is
each run's for half of the time. A run finds as many cores as its half has, and starts as many threads.

One process, the gate's, changes the cores of all threads of both runs, by their place in the half: a thread that a run
has bound to its first core is on the first core of the other half then. A thread that begins meanwhile is moved the
next time. Nothing blocks but the wait for a second, which ends when a run ends; when the gate dies, the runs stay where
they are.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from rlbench.harness.devices.kinds import choose_device

Halves = tuple[tuple[int, ...], tuple[int, ...]]
"""Numbers of cores, as many in both."""
SWAP_S = 1.0


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
        while not select.select(ends, [], [], SWAP_S)[0]:
            halves = halves[::-1]
            for run, half in zip(runs, halves, strict=True):
                _move(run.pid, halves, half)


def _move(pid: int, halves: Halves, half: Sequence[int]) -> None:
    """Moves all threads of a process and of those below it to a half; whoever ends meanwhile is left out."""
    places = {core: half[place] for cores in halves for place, core in enumerate(cores)}
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(FileNotFoundError, ProcessLookupError):
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    with suppress(ProcessLookupError):
                        bound = os.sched_getaffinity(int(task.name))
                        os.sched_setaffinity(int(task.name), {places.get(core, core) for core in bound})
