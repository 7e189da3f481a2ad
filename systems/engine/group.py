"""The ranks of a run as one group: torch.distributed and its TCPStore, as torchrun's variables say.

Who blocks: `sum` and `average_gradients` wait for every rank; `add` waits for one round trip to the store. What frees
them: the other ranks, or their death, which closes the connections and raises here; the keeper of the run ends the
survivors. One rank alone makes no connection at all.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from harness import process
from harness.devices import num_ranks_here

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from harness.contract import Device, Place

START_LIMIT = timedelta(minutes=5)


class Group:
    """This rank's membership; `close` leaves it."""

    def __init__(self, place: Place, device: Device | None = None) -> None:
        self.rank, self.num_ranks = place.rank, place.num_ranks
        self._device = device
        self._counts: dict[str, int] = {}
        self._store: Store | None = None
        if self.num_ranks > 1:
            store = _store(place)
            distributed.init_process_group(_backend(place), store=store, rank=place.rank, world_size=place.num_ranks)
            self._store = PrefixStore("rlbench", store)

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter that all ranks share, from 0; returns its new value."""
        if self._store is not None:
            return int(self._store.add(key, amount))
        self._counts[key] = self._counts.get(key, 0) + amount
        return self._counts[key]

    def delete(self, key: str) -> None:
        """Forgets a counter."""
        if self._store is not None:
            self._store.delete_key(key)
        else:
            self._counts.pop(key, None)

    def publish(self, key: str, text: str) -> None:
        """Leaves a text for all ranks; a key is published once."""
        if self._store is not None:
            self._store.set(f"text/{key}", text)

    def read(self, key: str) -> str:
        """The text that a rank has published, or will within the start limit; more than one rank only."""
        assert self._store is not None, "alone, a rank has nobody to read from"
        return str(self._store.get(f"text/{key}").decode())

    def sum(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sum of an array over all ranks; waits for all of them."""
        if self._store is None:
            return values
        total = torch.from_numpy(values.copy())
        distributed.all_reduce(total)
        return total.numpy()

    def gather(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The arrays [K] of all ranks, [R, K]; waits for all of them."""
        rows = np.zeros((self.num_ranks, len(values)))
        rows[self.rank] = values
        return self.sum(rows)

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replaces gradients by their means over the ranks, in one all-reduce; ranks weigh the same (DD-PPO eq. 4)."""
        if self._store is None:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= self.num_ranks
        for gradient, part in zip(
            gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True
        ):
            gradient.copy_(part.view_as(gradient))
        if self._device is not None:
            self._device.communicate("all_reduce")

    def note_exchange(self, peer: int) -> None:
        """Weights went to a rank or came from it; takes the time that this costs on emulated GPUs, beside the real."""
        if self._device is not None and peer != self.rank:
            self._device.communicate("exchange", peer)

    def broadcast(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Gives every rank the weights of rank 0."""
        if self._store is not None:
            for parameter in parameters:
                distributed.broadcast(parameter.data, src=0)

    def close(self) -> None:
        """Leaves the group, once all have come so far."""
        if self._store is not None:
            distributed.barrier()
            distributed.destroy_process_group()

    def leave(self) -> None:
        """Leaves the group at once, whether or not the other ranks are still there: with the end of the process.

        To destroy a process group that has lost a rank may abort the process ("terminate called without an active
        exception"), after all its work was done.
        """


def _store(place: Place) -> Store:
    """The store of the run; rank 0 serves it, unless the launcher does so itself, as torchrun may.

    By itself torch's store listens on every interface, and whoever reaches it may write to it. So rank 0 listens on
    the socket that the launcher gave it, or on one at MASTER_ADDR alone.
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
