from __future__ import annotations

import pytest

from rlbench.harness.contract.network_costs import NetworkCosts, ring_all_reduce_s, tree_all_reduce_s

LATENCY_S, BYTES_PER_S = 1e-3, 1e6


@pytest.mark.parametrize(
    ("num_ranks", "ring_s", "tree_s"),
    [
        # 1 MB takes 1 s on a link.
        (2, 2 * 1 * (0.001 + 0.5), 2 * 1 * (0.001 + 1.0)),
        (4, 2 * 3 * (0.001 + 0.25), 2 * 2 * (0.001 + 1.0)),
        (5, 2 * 4 * (0.001 + 0.2), 2 * 3 * (0.001 + 1.0)),
        (8, 2 * 7 * (0.001 + 0.125), 2 * 3 * (0.001 + 1.0)),
    ],
)
def test_all_reduce_by_hand(num_ranks: int, ring_s: float, tree_s: float) -> None:
    """A ring sends 2 (R - 1) R-ths one after the other, a tree the whole 2 log2(R) times, rounded up."""
    assert ring_all_reduce_s(num_ranks, 1e6, LATENCY_S, BYTES_PER_S) == pytest.approx(ring_s)
    assert tree_all_reduce_s(num_ranks, 1e6, LATENCY_S, BYTES_PER_S) == pytest.approx(tree_s)


def costs(weights_bytes: float) -> NetworkCosts:
    """Of weights of that size."""
    return NetworkCosts(latency_s=LATENCY_S, bytes_per_s=BYTES_PER_S, weights_bytes=weights_bytes)


@pytest.mark.parametrize("num_ranks", [3, 8, 64])
def test_large_messages_go_around_a_ring(num_ranks: int) -> None:
    """With much data the ring is faster, and takes little more than two times the data's time on a link."""
    args = num_ranks, 1e9, LATENCY_S, BYTES_PER_S
    assert ring_all_reduce_s(*args) < tree_all_reduce_s(*args)
    assert costs(1e9).all_reduce_s(num_ranks) == ring_all_reduce_s(*args)
    assert costs(1e9).all_reduce_s(num_ranks) == pytest.approx(2 * 1000 * (1 - 1 / num_ranks), rel=1e-3)


@pytest.mark.parametrize("num_ranks", [64, 100, 1024])
def test_tiny_messages_of_many_ranks_go_up_a_tree(num_ranks: int) -> None:
    """With little data the number of messages counts, which grows as log2(R)."""
    args = num_ranks, 8.0, LATENCY_S, BYTES_PER_S
    assert tree_all_reduce_s(*args) < ring_all_reduce_s(*args)
    assert costs(8.0).all_reduce_s(num_ranks) == tree_all_reduce_s(*args)
    assert costs(8.0).all_reduce_s(1024) == pytest.approx(2 * 10 * (LATENCY_S + 8e-6))


def test_one_rank_pays_nothing() -> None:
    """It has nobody to agree with."""
    alone = NetworkCosts(synchronize_s=1.0, synchronize_doubling_s=1.0, latency_s=1.0, weights_bytes=1e9)
    assert alone.all_reduce_s(1) == alone.synchronize_ranks_s(1) == 0.0


@pytest.mark.parametrize(("num_ranks", "expected_s"), [(2, 1.25), (8, 1.75), (1024, 3.5)])
def test_synchronising_has_a_constant_and_a_growing_part(num_ranks: int, expected_s: float) -> None:
    """A constant, and as much more for each doubling of the ranks."""
    network = NetworkCosts(synchronize_s=1.0, synchronize_doubling_s=0.25)
    assert network.synchronize_ranks_s(num_ranks) == pytest.approx(expected_s)


def test_a_network_that_is_not_stated_costs_nothing() -> None:
    """By default links are infinitely fast."""
    assert NetworkCosts().all_reduce_s(1024) == NetworkCosts().synchronize_ranks_s(1024) == NetworkCosts().link_s == 0.0
    assert costs(3e6).link_s == pytest.approx(3.0)
