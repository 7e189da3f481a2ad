"""How one rank agrees with the others on weights and on progress: the protocol.

    each update:          begin_update, forward pass, sum_moments if advantages are normalised over all ranks,
                          backward pass, average_gradients, clipping, step, end_update
    after collecting:     wait_for_ranks
    end of an iteration:  agree, is_over, statistics, in this order
    after training:       final_policy, close

`sum_moments`, `average_gradients`, `wait_for_ranks`, `agree` and `close` of `AllReducer` block until all ranks have
called them.
Asynchronous averagers (`gossiping.py`, `clients.py`) wait for no rank longer than their time limit, except at the end
(`asynchronous.py`). `wire/group.py` and `wire/mailbox.py` say what frees them, and what happens when a rank dies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray


class Averager(Protocol):
    """What one rank does to agree with the others on weights and on progress."""

    is_synchronous: bool
    """Whether every update waits for all ranks."""

    def begin_update(self) -> None:
        """Called before the gradients of an update are computed."""

    def sum_moments(self, moments: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over the ranks whose gradients are averaged in this update; may change `moments`."""

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Called between the backward pass and gradient clipping; may replace the gradients."""

    def end_update(self) -> None:
        """Called after the optimiser step; may replace the weights."""

    def wait_for_ranks(self, *, broke_off: bool) -> bool:
        """The barrier after collecting; asynchronous ranks have none.

        `broke_off`: whether this rank broke its rollout off. Returns whether any rank that waits here did.
        """

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:
        """The sum of an array over the ranks; its length is the same on all ranks and in all calls.

        Asynchronous: `own` plus what was last heard from each other rank; nothing for a rank that was never heard. Of a
        rank that is gone only the first `num_lasting` entries still count.
        """

    def is_over(self, own: bool) -> bool:
        """Whether the run is over, `own` being this rank's opinion.

        Synchronous: `own`, which is equal on all ranks. Asynchronous: True once any rank has said so; tells the others.
        """

    def statistics(self) -> dict[str, float]:
        """What this rank knows about agreement, for its time series; as of the last `agree`, always the same keys."""

    def final_policy(self) -> bool:
        """Whether this rank is the one that leaves the weights; its policy then holds those that all ranks agree on."""

    def close(self) -> None:
        """Leaves the group together with the ranks that are still there."""
