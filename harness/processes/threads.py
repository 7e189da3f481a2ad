"""How many threads libraries have in the processes of a run, as far as variables of the environment say it."""

from __future__ import annotations

import os


def sleeping_threads() -> dict[str, str]:
    """Variables of a rank: threads that spin while they wait would take the cores from environment workers.

    Numpy has one thread for its products, of a few rows; on x86, where torch has another library for its own.
    """
    variables = {"OMP_WAIT_POLICY": "PASSIVE"}
    if os.uname().machine == "x86_64":
        variables["OPENBLAS_NUM_THREADS"] = "1"
    return {name: os.environ.get(name, value) for name, value in variables.items()}
