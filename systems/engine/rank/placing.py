"""Where ranks run: which ones share a machine, how many cores their workers have, and which core they stay on."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.devices.emulated_gpu import EmulatedGpu
from rlbench.harness.devices.kinds import num_ranks_here
from rlbench.systems.choices.collect import emulated_cores

if TYPE_CHECKING:
    from rlbench.harness.contract.device import Device, Place
    from rlbench.harness.contract.settings import GpuCosts
    from rlbench.systems.engine.wire.group import Group

RANKS_PER_CORE = 2
"""With this many ranks for each core, or more, a rank of emulated GPUs stays on one core."""


def machines_of(group: Group, place: Place) -> tuple[range, ...]:
    """The ranks of each machine, rank 0's first; waits for all ranks.

    Raises ValueError unless the launcher has numbered the ranks of each machine one after the other, as torchrun does.
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
    """Cores of this machine for the workers of `num_envs` environments, which may belong to several of its ranks.

    With emulated GPUs it is the number of cores that a machine with such GPUs would have for them.
    """
    if isinstance(device, EmulatedGpu):
        return emulated_cores(costs, num_envs, num_envs_of_rank)
    share = num_envs / (num_envs_of_rank * num_ranks_here(place))
    return max(1, int(len(os.sched_getaffinity(0)) * share))


def stay_on_a_core(place: Place, device: Device, *, is_concurrent: bool) -> None:
    """Keeps this rank of emulated GPUs, and the workers that it will start, on one core where ranks are many.

    Ranks that mostly sleep and are moved between cores find neither their code nor their data in a cache. A rank that
    learns while it collects (`is_concurrent`) is left alone: it may be the learner of all ranks, which needs more than
    its share of a core.
    """
    cores = sorted(os.sched_getaffinity(0))
    many = num_ranks_here(place) >= RANKS_PER_CORE * len(cores)
    if isinstance(device, EmulatedGpu) and many and not is_concurrent:
        os.sched_setaffinity(0, {cores[place.local_rank % len(cores)]})
