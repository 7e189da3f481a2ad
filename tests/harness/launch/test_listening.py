from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from tests.harness.runs import RunningSweep
from tests.lanes import deep

SYSTEMS = (
    pytest.param("sync", marks=deep),
    "gossip",
    pytest.param("appo:rollout.num_steps=8:rollout.batch=16", marks=deep),
)
"""Those whose ranks talk by an all-reduce, pair by pair, and through a server."""
NUM_RANKS = 2


def listening(processes: Iterable[psutil.Process]) -> set[str]:
    """Addresses that processes listen on, for connections or packets of anybody.

    A socket for packets that has a peer takes those of its peer alone: a rank's resolver asks the name server, since
    torch's TCPStore wants the name of ::ffff:127.0.0.1.
    """
    found, for_packets = set(), []
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            for connection in one.net_connections("inet"):
                takes_packets = connection.status == psutil.CONN_NONE and not connection.raddr
                if takes_packets:
                    for_packets.append((one, connection.laddr))
                if connection.status == psutil.CONN_LISTEN:
                    found.add(connection.laddr.ip)
    for one, address in for_packets:  # it may have been about to get its peer
        with suppress(psutil.NoSuchProcess):
            found |= {each.laddr.ip for each in one.net_connections("inet") if each.laddr == address and not each.raddr}
    return found


def test_what_listens() -> None:
    """Sockets that anybody can reach are found; one that has a peer, or does not take connections, is not."""
    me = [psutil.Process()]
    with (
        socket.create_server(("127.0.0.81", 0)) as server,
        socket.socket(type=socket.SOCK_DGRAM) as packets,
        socket.socket(type=socket.SOCK_DGRAM) as asking,
        socket.socket() as client,
    ):
        packets.bind(("127.0.0.82", 0))
        asking.bind(("127.0.0.83", 0))
        client.bind(("127.0.0.84", 0))
        found = listening(me)
        assert {"127.0.0.81", "127.0.0.82", "127.0.0.83"} <= found
        assert "127.0.0.84" not in found
        asking.connect(packets.getsockname())
        client.connect(server.getsockname())
        found = listening(me)
    assert {"127.0.0.81", "127.0.0.82"} <= found
    assert found.isdisjoint({"127.0.0.83", "127.0.0.84"})


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
            seen |= listening(sweep.processes())
            time.sleep(0.01)
        seen |= listening(sweep.processes())
        sweep.release("a")
        assert sweep.end() == 0
    assert seen
    assert [address for address in seen if not ip_address(address).is_loopback] == []
