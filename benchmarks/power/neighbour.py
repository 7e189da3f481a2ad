"""A busy neighbour on the same machine: a process that computes in bursts, half of the time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

SHORTEST_S, LONGEST_S = 0.02, 2.0
"""Of a burst, and of the pause after it; any order of magnitude is as likely."""


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """There is one within; it ends with this process too, which it looks for after each pause."""
    with subprocess.Popen([sys.executable, "-m", __name__, str(os.getpid())]) as neighbour:
        try:
            yield
        finally:
            neighbour.kill()


def _length_s(draw: random.Random) -> float:
    return float(SHORTEST_S * (LONGEST_S / SHORTEST_S) ** draw.random())


def main() -> None:
    """Compresses random bytes, in bursts."""
    draw, parent = random.Random(0), int(sys.argv[1])
    data = draw.randbytes(1 << 16)
    while os.getppid() == parent:
        end = time.monotonic() + _length_s(draw)
        while time.monotonic() < end:
            zlib.compress(data)
        time.sleep(_length_s(draw))


if __name__ == "__main__":
    main()
