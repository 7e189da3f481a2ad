"""Where the agents of torchrun meet: torch's static rendezvous, with a store that listens at one address only.

Torch's own rendezvous backends serve a TCPStore on every interface of the machine, and the store has no authentication:
whoever reaches it may write to it. This backend listens only at the endpoint's host, on node 0:

    torchrun --rdzv-backend rlbench --rdzv-endpoint HOST:PORT --rdzv-conf rank=K ...

The ranks of the nodes use the same store. The backend is an entry point of torch's group `torchrun.handlers`.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from rlbench.harness.processes import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


BACKEND = "rlbench"
"""The backend's name in torch."""


def handlers() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """The function that makes a handler, which torch asks the entry point for."""
    return make_handler


def make_handler(parameters: RendezvousParameters) -> RendezvousHandler:
    """The handler of one agent. Raises ValueError where the endpoint or the node's number is missing."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its documentation exports it
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous as static

    parameters.config["rank"] = parameters.get_as_int("rank")  # it comes from a command line
    handler = static.create_rdzv_handler(parameters)
    assert isinstance(handler, static.StaticTCPRendezvous)
    handler.get_backend = lambda: BACKEND  # type: ignore[method-assign]  # torch compares it with what was asked for
    if handler.rank == 0:
        handler._store = TCPStore(  # noqa: SLF001  the handler's own would listen on every interface
            handler.master_addr,
            handler.master_port,
            handler.world_size,
            is_master=True,
            timeout=handler.timeout,
            multi_tenant=True,
            master_listen_fd=_listening(handler.master_addr, handler.master_port),
        )
    return handler


def _listening(address: str, port: int) -> int:
    """The descriptor of a socket that listens there: the one that this process was given, or a new one."""
    given = os.environ.pop(process.STORE_VARIABLE, None)  # the ranks have no use for it
    if given:
        listening = socket.socket(fileno=int(given))
    else:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((address, port), family=family, backlog=1024)
    listening.set_inheritable(False)
    return listening.detach()
