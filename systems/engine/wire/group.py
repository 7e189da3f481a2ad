"""The ranks of a run as one group: sums, counters and texts that they share, over what `transport.py` connects.

`sum`, `gather`, `average_gradients`, `broadcast` and `close` block until every rank has called them; `add` blocks for
one round trip to the store, `read` until the text is there. The other ranks free them, or their death, which closes the
connections and raises here; the keeper ends the survivors. One rank alone makes no connection at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from rlbench.systems.engine.wire.links import REAL_LINKS, Links

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from rlbench.harness.contract.device import Device, Place
    from rlbench.systems.engine.wire.transport import Transport


class Group:
    """This rank's membership; `close` leaves it."""

    def __init__(self, place: Place, device: Device | None = None, links: Links = REAL_LINKS) -> None:
        self.rank, self.num_ranks, self.links = place.rank, place.num_ranks, links
        self._device = device
        self._counts: dict[str, int] = {}
        self._transport: Transport | None = links.transport(place) if self.num_ranks > 1 else None

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter that all ranks share and that begins at 0; returns its new value."""
        if self._transport is not None:
            return int(self._transport.store.add(key, amount))
        self._counts[key] = self._counts.get(key, 0) + amount
        return self._counts[key]

    def delete(self, key: str) -> None:
        """Forgets a counter."""
        if self._transport is not None:
            self._transport.store.delete_key(key)
        else:
            self._counts.pop(key, None)

    def publish(self, key: str, text: str) -> None:
        """Leaves a text for all ranks; a key is published once."""
        if self._transport is not None:
            self._transport.store.set(f"text/{key}", text)

    def read(self, key: str) -> str:
        """The text that a rank has published, or will publish within the start limit; not for a rank that is alone."""
        assert self._transport is not None, "alone, a rank has nobody to read from"
        return str(self._transport.store.get(f"text/{key}").decode())

    def sum(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sum of an array over all ranks; waits for all of them."""
        if self._transport is None:
            return values
        total = torch.from_numpy(values.copy())
        self._transport.all_reduce(total)
        return total.numpy()

    def gather(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The arrays [K] of all ranks, [R, K]; waits for all of them."""
        rows = np.zeros((self.num_ranks, len(values)))
        rows[self.rank] = values
        return self.sum(rows)

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replaces gradients by their means over the ranks, in one all-reduce; ranks weigh the same (DD-PPO eq. 4)."""
        if self._transport is None:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._transport.all_reduce(flat)
        flat /= self.num_ranks
        for gradient, part in zip(
            gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True
        ):
            gradient.copy_(part.view_as(gradient))
        if self._device is not None:
            self._device.communicate("all_reduce")

    def sum_moments(self, moments: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor [3] over all ranks, on their devices; waits for all of them."""
        if self._transport is None:
            return moments
        self._transport.all_reduce(moments)
        if self._device is not None:
            self._device.communicate("moments")
        return moments

    def note_exchange(self, peer: int) -> None:
        """Notes that weights went to a rank or came from it; emulated GPUs add the time that this would cost."""
        if self._device is not None and peer != self.rank:
            self._device.communicate("exchange", peer)

    def broadcast(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Gives every rank the weights of rank 0."""
        if self._transport is not None:
            for parameter in parameters:
                self._transport.broadcast(parameter.data)

    def close(self) -> None:
        """Leaves the group, once all ranks have come as far."""
        if self._transport is not None:
            self._transport.close()

    def leave(self) -> None:
        """Leaves the group to the end of the process, whether or not the other ranks are still there; does nothing now.

        Destroying a process group that has lost a rank may abort the process ("terminate called without an active
        exception") after all its work is done.
        """
