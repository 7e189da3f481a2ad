"""The time of messages between ranks on emulated GPUs, from latency and bandwidth, and of ending an iteration together.

Pure arithmetic: the emulated GPU sleeps for these times, and a prediction adds them up. Letters: R ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOMENTS_BYTES = 24
"""Size of the moments of advantages: how many, their sum, and that of their squares."""
MOST_LATENCY_MS = 1e6
LEAST_MB_PER_S, MOST_MB_PER_S = 1e-3, 1e9
"""Limits of what a profile may state, so that all times that follow from it are finite."""


def ring_all_reduce_s(num_ranks: int, num_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Seconds of an all-reduce around a ring: 2 (R - 1) messages of 1 / R of the data each, one after the other.

    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2), 2009.
    """
    return 2 * (num_ranks - 1) * (latency_s + num_bytes / num_ranks / bytes_per_s)


def tree_all_reduce_s(num_ranks: int, num_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Seconds of an all-reduce up and down a binary tree: 2 ceil(log2(R)) levels with a message of all data at each."""
    return 2 * math.ceil(math.log2(num_ranks)) * (latency_s + num_bytes / bytes_per_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkCosts:
    """Times of communication between ranks; with the defaults it takes no time."""

    synchronize_s: float = 0.0
    """Per iteration, if there is more than one rank."""
    synchronize_doubling_s: float = 0.0
    """Per iteration, times log2(R)."""
    latency_s: float = 0.0
    """Of one message."""
    bytes_per_s: float = math.inf
    """Bandwidth of each rank's link."""
    weights_bytes: float = 0.0
    """Size of the weights, and of their gradients."""

    def synchronize_ranks_s(self, num_ranks: int) -> float:
        """Seconds that all ranks need to end an iteration together; 0 for one rank."""
        return self.synchronize_s + self.synchronize_doubling_s * math.log2(num_ranks) if num_ranks > 1 else 0.0

    def all_reduce_s(self, num_ranks: int, num_bytes: float | None = None) -> float:
        """Seconds of one all-reduce, of gradients unless told otherwise, by the faster way; 0 for one rank."""
        if num_ranks == 1:
            return 0.0
        costs = num_ranks, self.weights_bytes if num_bytes is None else num_bytes, self.latency_s, self.bytes_per_s
        return min(ring_all_reduce_s(*costs), tree_all_reduce_s(*costs))

    @property
    def link_s(self) -> float:
        """Seconds that one copy of the weights keeps a rank's link busy."""
        return self.weights_bytes / self.bytes_per_s
