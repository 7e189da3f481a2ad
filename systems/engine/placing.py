"""Where the processes of emulated GPUs run: how many cores their machine would have, and which of ours they take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.devices import num_ranks_here
from harness.emulated_gpu import EmulatedGpu

if TYPE_CHECKING:
    from harness.contract import Device, Place
    from harness.settings import GpuCosts

RANKS_PER_CORE = 2
"""From so many on, ranks stay on a core."""


def emulated_cores(costs: GpuCosts, num_envs: int, num_envs_of_rank: int) -> int:
    """Cores for the workers of `num_envs` environments, which may be of several ranks; one for each if not stated."""
    return costs.cores * num_envs // num_envs_of_rank or num_envs


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
