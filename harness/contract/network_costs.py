"""What messages between ranks cost on emulated GPUs: latency and bandwidth, and what it takes to agree.

Pure arithmetic: the emulated GPU sleeps for it, and a prediction adds it up. Letters: R ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_LATENCY_MS = 1e6
LEAST_MB_PER_S, MOST_MB_PER_S = 1e-3, 1e9
"""What a profile may state, so that whatever follows from it is finite."""


def ring_all_reduce_s(num_ranks: int, num_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Seconds of an all-reduce around a ring: 2 (R - 1) messages of an R-th of the data, one after the other.

    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2), 2009.
    """
    return 2 * (num_ranks - 1) * (latency_s + num_bytes / num_ranks / bytes_per_s)


def tree_all_reduce_s(num_ranks: int, num_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Seconds of an all-reduce up a binary tree and down again: 2 log2(R) levels, the whole data at each."""
    return 2 * math.ceil(math.log2(num_ranks)) * (latency_s + num_bytes / bytes_per_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkCosts:
    """What ranks pay to agree; the defaults cost nothing."""

    synchronize_s: float = 0.0
    """Per iteration, as soon as there is more than one rank."""
    synchronize_doubling_s: float = 0.0
    """Per iteration, times log2(R)."""
    latency_s: float = 0.0
    """Of one message."""
    bytes_per_s: float = math.inf
    """Bandwidth of each rank's link."""
    weights_bytes: float = 0.0
    """Size of the weights, and of their gradients."""

    def synchronize_ranks_s(self, num_ranks: int) -> float:
        """Seconds that all ranks need to end an iteration together; 0 for one."""
        return self.synchronize_s + self.synchronize_doubling_s * math.log2(num_ranks) if num_ranks > 1 else 0.0

    def all_reduce_s(self, num_ranks: int) -> float:
        """Seconds of one all-reduce of gradients, by ring or tree, whichever is faster; 0 for one rank."""
        if num_ranks == 1:
            return 0.0
        costs = num_ranks, self.weights_bytes, self.latency_s, self.bytes_per_s
        return min(ring_all_reduce_s(*costs), tree_all_reduce_s(*costs))

    @property
    def link_s(self) -> float:
        """Seconds for which one copy of the weights keeps a rank's link busy."""
        return self.weights_bytes / self.bytes_per_s
