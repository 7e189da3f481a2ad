"""How the work is spread over the environments of a run: scene sizes by `Seat.global_index`, alike or widely different.

The share of an environment depends on its global index and nothing else, so it is the same for every system and seed.
Each rank has a mix, and the mixes differ, so that there are stragglers among ranks too.
"""

from __future__ import annotations

import math

import numpy as np

from rlbench.results.reading.names import known_names

SPREAD_STREAM = 20_19
"""Key of the stream of `spread`: fixed, so that the work of an environment never changes."""
SMALL_SIDE, LARGE_SIDE = 2, 48


def check_workload(workload: str) -> None:
    """Raises ValueError for anything but `homogeneous` and `heterogeneous`."""
    from rlbench.harness.contract.scenario import WORKLOADS

    if workload not in WORKLOADS:
        raise ValueError(f"workload={workload}: unknown; {known_names(workload, WORKLOADS)}")


def spread(global_index: int) -> float:
    """A number in [0, 1) for an environment: uniform over environments, fixed for each."""
    return float(np.random.default_rng((SPREAD_STREAM, global_index)).random())


def rooms_per_side(share: float, largest: int = LARGE_SIDE) -> int:
    """Rooms along each side of a plan, log-spaced from 2 to `largest` as `share` goes from 0 to 1."""
    return round(SMALL_SIDE * math.pow(largest / SMALL_SIDE, share))
