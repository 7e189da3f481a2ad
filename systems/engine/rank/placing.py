"""Where the processes of emulated GPUs run: how many cores their machine would have, and which of ours they take."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from harness.devices.emulated_gpu import EmulatedGpu
from harness.devices.kinds import num_ranks_here
from systems.choices.collect import emulated_cores

if TYPE_CHECKING:
    from harness.contract.device import Device, Place
    from harness.contract.settings import GpuCosts
    from systems.engine.wire.group import Group

RANKS_PER_CORE = 2
"""From so many on, ranks stay on a core."""


def machines_of(group: Group, place: Place) -> tuple[range, ...]:
    """The ranks of each machine, rank 0's first; waits for all ranks.

    Raises ValueError where the launcher has not numbered those of a machine one after the other, as torchrun does.
    """
    local_ranks = group.gather(np.array([float(place.local_rank)]))[:, 0].astype(int).tolist()
    firsts = [rank for rank, local_rank in enumerate(local_ranks) if local_rank == 0]
    machines = tuple(range(first, end) for first, end in pairwise([*firsts, place.num_ranks]))
    if [rank - ranks.start for ranks in machines for rank in ranks] != local_ranks:
        raise ValueError(
            f"LOCAL_RANK of ranks 0 to {place.num_ranks - 1} is {local_ranks}: must count up on each machine"
        )
    return machines


def worker_cores(place: Place, device: Device, costs: GpuCosts, num_envs: int, num_envs_of_rank: int) -> int:
    """Cores of this machine for the workers of `num_envs` environments, which may be of several of its ranks.

    On emulated GPUs as many as there would be on a machine that has the GPUs.
    """
    if isinstance(device, EmulatedGpu):
        return emulated_cores(costs, num_envs, num_envs_of_rank)
    share = num_envs / (num_envs_of_rank * num_ranks_here(place))
    return max(1, int(len(os.sched_getaffinity(0)) * share))


def stay_on_a_core(place: Place, device: Device, *, is_concurrent: bool) -> None:
    """Keeps this rank of emulated GPUs, and the workers that it will start, on one core, where ranks are many.

    Ranks that sleep for most of the time and are moved between cores find neither their code nor their data in a cache.
    Where a rank learns while it collects (`is_concurrent`) it is left alone: one may be the learner of all, and needs
    more than its share of a core.
    """
    cores = sorted(os.sched_getaffinity(0))
    many = num_ranks_here(place) >= RANKS_PER_CORE * len(cores)
    if isinstance(device, EmulatedGpu) and many and not is_concurrent:
        os.sched_setaffinity(0, {cores[place.local_rank % len(cores)]})
