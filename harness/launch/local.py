"""Forks the ranks of a run from their keeper, with the variables that torchrun would set.

The launcher never blocks; the keeper watches the ranks. A rank dies with the process that launched it.

Everything listens on the loopback interface: process groups because of the variables below, the store at a socket that
rank 0 gets from here. The socket is bound before any rank starts, so no other process can take the port meanwhile. Only
rank 0 keeps it: when rank 0 is gone, so is the port.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from pathlib import Path

from rlbench.harness.launch.rank import PARENT_VARIABLE, main
from rlbench.harness.processes import process
from rlbench.harness.processes.forked import Forked, close_others, fork, set_command
from rlbench.harness.processes.library_variables import library_variables

LOOPBACK = "127.0.0.1"


def listen() -> socket.socket:
    """A socket that listens on a free port of the loopback interface, for the store of a run."""
    return socket.create_server((LOOPBACK, 0), backlog=1024)


def rank_variables(rank: int, num_ranks: int, store: socket.socket) -> dict[str, str]:
    """The variables that tell a rank its place; rank 0 must also inherit the descriptor of `store`."""
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
        **library_variables(),
        PARENT_VARIABLE: str(os.getpid()),
    }


def launch(folder: Path, num_ranks: int) -> list[Forked]:
    """Forks all ranks of the run in `folder`; their output goes to `rank<k>.out` and `rank<k>.err` there.

    Call it in a process with one thread, which becomes their parent.
    """
    with listen() as store:
        places = [rank_variables(rank, num_ranks, store) for rank in range(num_ranks)]
        return [fork(partial(_be_rank, folder, rank, place, store)) for rank, place in enumerate(places)]


def _be_rank(folder: Path, rank: int, place: dict[str, str], store: socket.socket) -> int:
    """Runs in a forked process: does what `python -m rlbench.harness.launch.rank` does with these variables."""
    os.setpgid(0, 0)  # processes that it leaves behind when it is killed are found by this group
    streams = (Path(os.devnull), folder / f"rank{rank}.out", folder / f"rank{rank}.err")
    for stream, path in enumerate(streams):
        with path.open("wb" if stream else "rb") as file:
            os.dup2(file.fileno(), stream)
    close_others(*([store.fileno()] if rank == 0 else []))
    os.environ.update(place)
    set_command([sys.executable, "-P", "-m", "rlbench.harness.launch.rank", str(folder), str(rank)])
    return main(folder)
