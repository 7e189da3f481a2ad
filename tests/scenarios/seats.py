"""Seats for tests of scenarios."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from rlbench.harness.contract.device import Place, Seat

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rlbench.harness.contract.settings import Message, Work


class PlainDevice:
    """A device whose work takes no time of its own."""

    num_threads = 1

    def __init__(self, torch_name: str) -> None:
        self.torch_name = torch_name

    def busy(self, work: Work, num_items: int) -> AbstractContextManager[None]:
        """Takes no time."""
        del work, num_items
        return nullcontext()

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Takes no time."""


def seat_of(
    *, rank: int = 0, index: int = 0, num_envs: int = 8, seed: int = 0, num_ranks: int = 8, torch_name: str = "cpu"
) -> Seat:
    """A seat in a run of 8 ranks, unless told otherwise."""
    place = Place(rank=rank, num_ranks=num_ranks, local_rank=rank)
    return Seat(place=place, index=index, num_envs=num_envs, seed=seed, device=PlainDevice(torch_name))
