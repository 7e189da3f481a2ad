"""Environment variables that set how libraries use threads in the processes of a run."""

from __future__ import annotations

import os


def sleeping_threads() -> dict[str, str]:
    """Variables for a rank, whose waiting threads must not spin: that would take cores from environment workers.

    On x86, where torch has a BLAS library of its own, Numpy gets one thread, since its products have only a few rows.
    A variable that the user has set keeps its value.
    """
    variables = {"OMP_WAIT_POLICY": "PASSIVE"}
    if os.uname().machine == "x86_64":
        variables["OPENBLAS_NUM_THREADS"] = "1"
    return {name: os.environ.get(name, value) for name, value in variables.items()}
