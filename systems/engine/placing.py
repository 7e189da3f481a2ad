"""How many cores the machine of an emulated GPU would have; environment workers are made for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.settings import GpuCosts


def emulated_cores(costs: GpuCosts, num_envs: int, num_envs_of_rank: int) -> int:
    """Cores for the workers of `num_envs` environments, which may be of several ranks; one for each if not stated."""
    return costs.cores * num_envs // num_envs_of_rank or num_envs
