"""How long ranks take to agree: `systems.engine.averaging` without any weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.contract.network_costs import MOMENTS_BYTES
from rlbench.systems.choices.average import choose_peer
from rlbench.systems.model.compiling import book_link

if TYPE_CHECKING:
    from rlbench.harness.contract.network_costs import NetworkCosts
    from rlbench.harness.contract.settings import LearnSettings
    from rlbench.systems.choices.average import Gossip
    from rlbench.systems.model.state import Floats, Ints

SERVER = 0
NOBODY: frozenset[int] = frozenset()
"""No rank is ever lost in a prediction."""


class AllReduceTalks:
    """Every update waits for all ranks (DD-PPO eq. 4)."""

    is_synchronous = True
    holds_weights = False

    def __init__(self, network: NetworkCosts, num_ranks: int, learn: LearnSettings) -> None:
        self._all_reduce_s = network.all_reduce_s(num_ranks)
        if learn.normalize_advantages == "all":
            self._all_reduce_s += network.all_reduce_s(num_ranks, MOMENTS_BYTES)
        self.synchronize_s = network.synchronize_ranks_s(num_ranks)

    def update(self, ranks: Ints, begin: Floats) -> Floats:  # noqa: ARG002  it is all of them
        """When the last rank has come, and the all-reduce, or both, are over."""
        return np.full_like(begin, begin.max() + self._all_reduce_s)

    def end_iteration(self, ranks: Ints, at: Floats) -> Floats:  # noqa: ARG002  it is all of them
        """When the last rank has come, and all have synchronised."""
        return np.full_like(at, at.max() + self.synchronize_s)


class CentralTalks:
    """One learner for all; the others only wait for it."""

    is_synchronous = True
    synchronize_s = 0.0
    holds_weights = False

    def update(self, ranks: Ints, begin: Floats) -> Floats:  # noqa: ARG002  it is the one
        """At once: no other rank takes part."""
        return begin

    def end_iteration(self, ranks: Ints, at: Floats) -> Floats:  # noqa: ARG002  it is the one
        """At once: the other ranks wait already."""
        return at


class _Asynchronous:
    """Ranks ask one another, and wait for no slow one."""

    is_synchronous = False
    synchronize_s = 0.0
    holds_weights = True

    def __init__(self, network: NetworkCosts, num_ranks: int, interval: int) -> None:
        self._network, self._num_ranks, self._interval = network, num_ranks, interval
        self._num_updates = np.zeros(num_ranks, np.int64)
        self._links = np.zeros((num_ranks, 5))

    def _exchange(self, rank: int, peer: int | None, begin: float) -> float:
        """One question and its answer; the weights keep the peer's link busy."""
        if peer is None or peer == rank:
            return begin
        passed = float(book_link(self._links[peer], begin, self._network.link_s))
        return passed + 2 * self._network.latency_s

    def end_iteration(self, ranks: Ints, at: Floats) -> Floats:  # noqa: ARG002  all do the same
        """When the rank has asked every other rank how far it is, one after the other."""
        return at + 2 * self._network.latency_s * (self._num_ranks - 1)


class GossipTalks(_Asynchronous):
    """Every `interval` updates a rank exchanges weights with one other (dissertation, Algorithms 5 and 6)."""

    def __init__(self, network: NetworkCosts, num_ranks: int, settings: Gossip, seed: int) -> None:
        super().__init__(network, num_ranks, settings.interval)
        self._generators = [np.random.default_rng([seed, rank, 0x67]) for rank in range(num_ranks)]

    def update(self, ranks: Ints, begin: Floats) -> Floats:
        """When the exchange is over, if one is due."""
        passed = begin.copy()
        for place, rank in enumerate(ranks.tolist()):
            self._num_updates[rank] += 1
            if self._num_updates[rank] % self._interval == 0:
                peer = choose_peer(self._generators[rank], rank, self._num_ranks, NOBODY)
                passed[place] = self._exchange(rank, peer, float(begin[place]))
        return passed


class ServerTalks(_Asynchronous):
    """Every `interval` updates, except before the first, a rank exchanges with rank 0 (Algorithms 3 and 4)."""

    def update(self, ranks: Ints, begin: Floats) -> Floats:
        """When the exchange is over, if one is due."""
        passed = begin.copy()
        for place, rank in enumerate(ranks.tolist()):
            if self._num_updates[rank] > 0 and self._num_updates[rank] % self._interval == 0:
                passed[place] = self._exchange(rank, SERVER, float(begin[place]))
            self._num_updates[rank] += 1
        return passed
