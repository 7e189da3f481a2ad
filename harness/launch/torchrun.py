"""Starts the ranks of one node under torchrun, and says which of them failed first.

The keeper of a node calls this (`harness/run/keeper.py`). The nodes meet at a store that listens at one address only
(`harness/launch/rendezvous.py`). Their number is fixed, and nothing is ever restarted: a measurement that goes on with
other processes is another measurement. torchrun ends all ranks of its node when one of them fails, even if the system
could survive that. torchrun dies with the keeper that started it, and each rank dies with torchrun.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from rlbench.harness.launch.nodes.launches import NodeSeat
from rlbench.harness.launch.rank import PARENT_VARIABLE, UNDER_TORCHRUN
from rlbench.harness.launch.rendezvous import BACKEND
from rlbench.harness.processes import process
from rlbench.harness.processes.library_variables import library_variables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rlbench.harness.launch.nodes.launches import Launch
    from rlbench.harness.plan.cells import Cell

OUTPUT = "torchrun.err"
FAILURE = re.compile(r"\brank\s*:\s*(\d+)\b.*?exitcode\s*:\s*(-?\d+)", re.DOTALL)
ROOT_CAUSE = "Root Cause"
FORCED = "forcefully exiting via"
"""What torchrun prints when it kills ranks that it has told in vain to end."""


def words(seat: NodeSeat, folder: str) -> list[str]:
    """Torchrun's command line, without its program."""
    return [
        f"--nnodes={seat.num_nodes}",
        f"--nproc-per-node={seat.num_local}",
        f"--node-rank={seat.node}",
        f"--rdzv-backend={BACKEND}",
        f"--rdzv-endpoint={endpoint(seat.address, seat.port)}",
        f"--rdzv-id={seat.run_id}",
        f"--rdzv-conf=rank={seat.node}",
        "--max-restarts=0",
        "-m",
        "rlbench.harness.launch.rank",
        folder,
    ]


def endpoint(address: str, port: int) -> str:
    """Address and port in one word."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def dry_run_lines(launch: Launch, cells: Sequence[Cell]) -> list[str]:
    """The commands for each node as text, for somebody who starts them with another tool."""
    told = [f"{name}={value}" for name, value in interface_variables(launch.interface or "INTERFACE").items()]
    lines = []
    for gpus in sorted({cell.gpus for cell in cells}):
        nodes = launch.num_nodes(gpus)
        lines.append(f"x{gpus}: with {' '.join(told)} in the environment")
        for node in range(nodes):
            ranks = launch.ranks_of(node, gpus)
            seat = NodeSeat(
                node=node,
                num_nodes=nodes,
                first_rank=ranks.start,
                num_local=len(ranks),
                address=launch.hosts[0],
                port=29400,
                interface=launch.interface,
                run_id="RUN",
            )
            lines.append(f"  on {launch.hosts[node]}: torchrun {' '.join(words(seat, 'FOLDER'))}")
    return lines


def interface_variables(interface: str) -> dict[str, str]:
    """The environment variables with which process groups listen on one interface."""
    return {
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": f"={interface}",  # without `=`, NCCL takes the name as a prefix
    }


def launch(folder: Path, seat: NodeSeat, store_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Starts torchrun for the ranks of this node; its output goes to `torchrun.err`, theirs to files of their own.

    `store_fds`: on node 0, the one descriptor that listens at the seat's address and port.
    """
    parent = os.getpid()
    with (folder / OUTPUT).open("wb") as output:
        return subprocess.Popen(  # noqa: S603  our own interpreter, torch's module
            [sys.executable, "-P", "-m", "torch.distributed.run", *words(seat, str(folder))],
            env={
                **os.environ,
                **interface_variables(seat.interface),
                **library_variables(),
                PARENT_VARIABLE: UNDER_TORCHRUN,
                **({process.STORE_VARIABLE: str(store_fds[0])} if store_fds else {}),
            },
            pass_fds=store_fds,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: process.die_with_parent(parent),  # noqa: PLW1509  no other thread runs yet
        )


def first_failure(folder: Path) -> dict[int, int]:
    """The rank that failed first, and its exit code; empty where torchrun does not say.

    It is the rank whose end torchrun saw first, unless somebody else killed another one: torchrun may see the end of a
    process a moment after its connections have closed, and by then the ranks at their other ends have raised and ended.
    """
    path = folder / OUTPUT
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    others, _, root = text.partition(ROOT_CAUSE)
    found = FAILURE.search(root)
    if found is None:
        return {}
    rank, code = map(int, found.groups())
    if code > 0 and FORCED not in text:
        failures = ((int(other), int(how)) for other, how in FAILURE.findall(others))
        killed = [failure for failure in failures if failure[1] < 0 and failure[1] != -signal.SIGTERM]
        rank, code = min(killed, default=(rank, code))
    return {rank: code}
