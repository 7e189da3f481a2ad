"""Environment variables that set how libraries use threads and memory in the processes of a run."""

from __future__ import annotations

import os

NUM_SPINS = 10_000
"""Turns of libgomp's waiting loop before a thread of torch sleeps: 0.2 ms, longer than from one operation of a learning
phase to the next, so that only the last leaves its threads asleep. At 0 `sync` on gym/HalfCheetah-v5 made 0.56 times as
many steps/s on two cores; libgomp's own number takes 3.6 ms, in which environment workers may want the cores."""
FREE_BYTES_KEPT = 1 << 30
"""Of the heap's top, for the next mini-batch; glibc's own limit has it ask the system for the same pages each time."""
LARGEST_IN_HEAP = 32 << 20
"""Bytes of a block; the most that glibc allows. Larger blocks are mapped, and their pages zeroed, at each request."""


def library_variables() -> dict[str, str]:
    """Variables for a rank, in which torch shares the cores with environment workers.

    They must be there when the process starts. On x86, where torch has a BLAS library of its own, Numpy gets one
    thread, since its products have only a few rows. A variable that the user has set keeps its value, and who has set
    how threads wait gets no number of turns, which would have the last word.
    """
    variables = {
        "MALLOC_TRIM_THRESHOLD_": f"{FREE_BYTES_KEPT}",
        "MALLOC_MMAP_THRESHOLD_": f"{LARGEST_IN_HEAP}",
    }
    if "OMP_WAIT_POLICY" not in os.environ:
        variables |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": f"{NUM_SPINS}"}
    if os.uname().machine == "x86_64":
        variables["OPENBLAS_NUM_THREADS"] = "1"
    return {name: os.environ.get(name, value) for name, value in variables.items()}
