"""Starts the ranks of a run as processes of this machine, with the variables that torchrun would set.

The launcher blocks nowhere; who watches the ranks is the keeper. A rank dies with the process that launched it.

What listens, listens on the loopback interface: the groups by the variables below, the store by the socket that rank 0
gets from here. It is bound before any rank starts, so that no other process can take the port meanwhile, and given
away: when rank 0 is gone, so is the port.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from harness import process
from harness.rank import PARENT_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


LOOPBACK = "127.0.0.1"


def listen() -> socket.socket:
    """A socket that listens on a free port of the loopback interface, for the store of a run."""
    return socket.create_server((LOOPBACK, 0), backlog=1024)


def rank_variables(rank: int, num_ranks: int, store: socket.socket) -> dict[str, str]:
    """What a rank learns its place from; rank 0 needs the descriptor of `store` too (`pass_fds`)."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.getsockname()[1]),
        **({process.STORE_VARIABLE: str(store.fileno())} if rank == 0 else {}),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        **sleeping_threads(),
        PARENT_VARIABLE: str(os.getpid()),
    }


def sleeping_threads() -> dict[str, str]:
    """Variables of a rank: threads that spin while they wait would take the cores from environment workers.

    Numpy has one thread for its products, of a few rows; on x86, where torch has another library for its own.
    """
    variables = {"OMP_WAIT_POLICY": "PASSIVE"}
    if platform.machine() == "x86_64":
        variables["OPENBLAS_NUM_THREADS"] = "1"
    return {name: os.environ.get(name, value) for name, value in variables.items()}


def launch(folder: Path, num_ranks: int) -> list[subprocess.Popen[bytes]]:
    """Starts all ranks of the run in `folder`; their output goes to `rank<k>.out` and `rank<k>.err` there."""
    ranks = []
    with listen() as store:
        for rank in range(num_ranks):
            with (folder / f"rank{rank}.out").open("wb") as out, (folder / f"rank{rank}.err").open("wb") as err:
                ranks.append(
                    subprocess.Popen(  # noqa: S603  our own interpreter and module
                        [sys.executable, "-P", "-m", "harness.rank", str(folder)],
                        env={**os.environ, **rank_variables(rank, num_ranks, store)},
                        pass_fds=() if rank else (store.fileno(),),
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                    )
                )
    return ranks
