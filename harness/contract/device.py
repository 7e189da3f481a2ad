"""The places of ranks and environments in a run, and the device that a rank owns."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from rlbench.harness.contract.settings import Message, Work

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A rank's place among the ranks of its run, in torchrun's terms."""

    rank: int
    num_ranks: int
    local_rank: int

    @classmethod
    def from_environment(cls) -> Place:
        """Reads the variables that torchrun and the local launcher set; raises ValueError naming the missing ones."""
        if missing := [name for name in RANK_VARIABLES if name not in os.environ]:
            raise ValueError(f"{', '.join(missing)}: not set; a rank is started by `rlbench run` or by torchrun")
        rank, num_ranks, local_rank, *_ = (os.environ[name] for name in RANK_VARIABLES)
        return cls(rank=int(rank), num_ranks=int(num_ranks), local_rank=int(local_rank))


class Device(Protocol):
    """The device that a rank owns: a GPU, an emulated GPU, or its share of the CPU."""

    @property
    def torch_name(self) -> str:
        """Where tensors live: `cpu` or `cuda:k`."""

    @property
    def num_threads(self) -> int:
        """CPU threads for the rank's tensor work; environment workers and other ranks share the cores."""

    def busy(self, work: Work, num_items: int) -> AbstractContextManager[None]:
        """Wraps work; exits when the device has finished it (CUDA: synchronised; emulated: its time is over)."""

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Blocks for the stated time of a message between ranks, beside the real message (emulated GPUs only)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """The place in a run of one environment, or of one agent where they have several (`harness.contract.agents`)."""

    place: Place
    index: int
    """0 .. num_envs - 1 within the rank, which has so many seats."""
    num_envs: int
    seed: int
    """Different for each environment of a run; the same in each run of the cell."""
    device: Device
    """The device of the rank, for environments that render on it."""

    @property
    def global_index(self) -> int:
        """0 .. num_ranks * num_envs - 1 within the run."""
        return self.place.rank * self.num_envs + self.index
