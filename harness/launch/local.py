"""Starts the ranks of a run as processes of this machine, with the variables that torchrun would set.

The launcher blocks nowhere; who watches the ranks is the keeper. A rank dies with the process that launched it.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from harness.rank import PARENT_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_variables(rank: int, num_ranks: int, port: int) -> dict[str, str]:
    """What a rank learns its place from. Groups listen on the loopback interface only."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        # Threads that spin while they wait would take the cores from environment workers.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        **_numpy_threads(),
        PARENT_VARIABLE: str(os.getpid()),
    }


def _numpy_threads() -> dict[str, str]:
    """One thread for numpy's products, of a few rows; on x86, where torch has another library for its own."""
    name = "OPENBLAS_NUM_THREADS"
    return {name: os.environ.get(name, "1")} if platform.machine() == "x86_64" else {}


def launch(folder: Path, num_ranks: int) -> list[subprocess.Popen[bytes]]:
    """Starts all ranks of the run in `folder`; their output goes to `rank<k>.out` and `rank<k>.err` there."""
    port = free_port()
    ranks = []
    for rank in range(num_ranks):
        with (folder / f"rank{rank}.out").open("wb") as out, (folder / f"rank{rank}.err").open("wb") as err:
            ranks.append(
                subprocess.Popen(  # noqa: S603  our own interpreter and module
                    [sys.executable, "-P", "-m", "harness.rank", str(folder)],
                    env={**os.environ, **rank_variables(rank, num_ranks, port)},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
            )
    return ranks
