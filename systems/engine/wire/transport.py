"""How the ranks of a run reach each other: torch.distributed and its TCPStore, as torchrun's variables say.

`all_reduce`, `broadcast` and `close` block until every rank has called them; the store blocks for one round trip, and
for a text until it is there. The other ranks free them, or their death, which closes the connections and raises here.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from rlbench.harness.devices.kinds import num_ranks_here
from rlbench.harness.processes import process

if TYPE_CHECKING:
    from rlbench.harness.contract.device import Place

START_LIMIT = timedelta(minutes=5)


class Transport:
    """Joins the other ranks, of which there is at least one; `close` leaves them."""

    def __init__(self, place: Place) -> None:
        store = _store(place)
        distributed.init_process_group(_backend(place), store=store, rank=place.rank, world_size=place.num_ranks)
        self.store = PrefixStore("rlbench", store)
        """Counters and texts that all ranks share."""

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Replaces a tensor by its sum over the ranks."""
        distributed.all_reduce(tensor)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Replaces a tensor by rank 0's."""
        distributed.broadcast(tensor, src=0)

    def close(self) -> None:
        """Leaves the group, once all ranks have come as far."""
        distributed.barrier()
        distributed.destroy_process_group()


def _store(place: Place) -> Store:
    """The store of the run; rank 0 serves it, unless the launcher does so itself, as torchrun may.

    By default torch's store listens on every interface, and anybody who reaches it may write to it. So rank 0 listens
    on the socket that the launcher gave it, or on one at MASTER_ADDR alone.
    """
    if place.rank or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return next(rendezvous("env://", timeout=START_LIMIT))[0]  # type: ignore[no-any-return]
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    given = os.environ.get(process.STORE_VARIABLE)
    listening = socket.socket(fileno=int(given)) if given else socket.create_server((address, port))
    listening.set_inheritable(False)
    fd = listening.detach()
    store: Store = distributed.TCPStore(  # type: ignore[attr-defined]  # its documentation exports it
        address, port, place.num_ranks, is_master=True, timeout=START_LIMIT, master_listen_fd=fd
    )
    return store


def _backend(place: Place) -> str:
    """NCCL for tensors on GPUs; gloo where there are none, and where ranks share one, which NCCL refuses."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.device_count() >= num_ranks_here(place) else "gloo"
