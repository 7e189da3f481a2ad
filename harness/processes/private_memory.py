"""How much memory processes have for themselves, where they were forked from each other.

Anonymous pages that several processes still share are divided among them (proportional set size), so that the sum over
the processes of a run is what they take. What is mapped from files, or shared on purpose, does not count.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

PAGES = b"Pss_Anon:"
"""Linux 5.4 and later, of processes of the same user."""


def private_bytes(process: psutil.Process) -> int:
    """Of a process; takes a millisecond, and more where it has much. Raises psutil.Error when it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(PAGES):
                return 1024 * int(line.split()[1])
    return most_private_bytes(process)


def most_private_bytes(process: psutil.Process) -> int:
    """No less than `private_bytes`, in microseconds: pages that are shared with other processes count whole."""
    memory = process.memory_info()
    return max(memory.rss - memory.shared, 0)
