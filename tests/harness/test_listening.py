from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from tests.harness.runs import RunningSweep

SYSTEMS = ("sync", "gossip", "appo:rollout.num_steps=8:rollout.batch=16")
"""Those whose ranks talk by an all-reduce, pair by pair, and through a server."""
NUM_RANKS = 2


def listening(sweep: RunningSweep) -> set[str]:
    """Addresses that processes of a sweep listen on, for connections or packets of anybody."""
    found = set()
    for one in sweep.processes():
        with suppress(psutil.NoSuchProcess):
            for connection in one.net_connections("inet"):
                if connection.status in {psutil.CONN_LISTEN, psutil.CONN_NONE}:  # the latter are for packets
                    found.add(connection.laddr.ip)
    return found


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_listens_on_the_loopback_interface_alone(tmp_path: Path, system: str) -> None:
    """While it starts and while it collects: its ranks can be reached, from this machine and no other."""
    options = (
        "--device",
        "emulated",
        "--gpus",
        str(NUM_RANKS),
        "--systems",
        system,
        "--scenario",
        "faulty/patient:tag=a",
    )
    seen: set[str] = set()
    with RunningSweep(tmp_path, *options, "--until", "return>=1") as sweep:
        while not (meters := sweep.meters(1, NUM_RANKS)) or min(meter.total("env_steps") for meter in meters) == 0:
            assert sweep.process.poll() is None, sweep.stderr
            seen |= listening(sweep)
        seen |= listening(sweep)
        sweep.release("a")
        assert sweep.end() == 0
    assert seen
    assert [address for address in seen if not ip_address(address).is_loopback] == []
