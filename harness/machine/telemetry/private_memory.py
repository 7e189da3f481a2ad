"""The private memory of processes, some of which were forked from each other.

An anonymous page that several processes still share after a fork is divided among them (proportional set size), so the
sum over the processes of a run is what they take together. Mapped files and shared memory do not count.

While the kernel adds up the pages of a process it has its memory map locked: a thread of it that takes or returns
memory waits. Who reads must not wait for a core meanwhile, so it runs before all others where that is permitted. In
runs at once that exchange their cores (`rlbench gate`) readers waited for seconds, and learning with them.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.harness.processes.priority import before_others

if TYPE_CHECKING:
    import psutil

PAGES = b"Pss_Anon:"
"""The kernel gives this line since Linux 5.4, for processes of the same user."""


def private_bytes(process: psutil.Process) -> int:
    """Reads private memory; takes 1 ms, more for a large process. Raises psutil.Error when the process has ended."""
    with suppress(OSError):
        with before_others():
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_bytes().splitlines()
        for line in lines:
            if line.startswith(PAGES):
                return 1024 * int(line.split()[1])
    return most_private_bytes(process)


def most_private_bytes(process: psutil.Process) -> int:
    """An upper bound of `private_bytes`, read in microseconds: pages shared with other processes count in full."""
    memory = process.memory_info()
    return max(memory.rss - memory.shared, 0)
