from __future__ import annotations

import pytest

from rlbench.harness.cluster.measured_network import fit
from rlbench.harness.contract.network_costs import NetworkCosts

LINKS = [(1e-3, 12.5e6), (2e-5, 1e10)]


def all_reduces(num_ranks: int, latency_s: float, bytes_per_s: float) -> list[dict[str, float]]:
    """What would be measured, by size, if the formula by which predictions reckon were exact."""
    costs = [
        NetworkCosts(latency_s=latency_s, bytes_per_s=bytes_per_s, weights_bytes=4.0**power) for power in range(5, 14)
    ]
    return [{"bytes": cost.weights_bytes, "seconds": cost.all_reduce_s(num_ranks)} for cost in costs]


@pytest.mark.parametrize("num_ranks", [2, 8])
@pytest.mark.parametrize(("latency_s", "bytes_per_s"), LINKS)
def test_a_link_is_found_from_all_reduces(num_ranks: int, latency_s: float, bytes_per_s: float) -> None:
    """That of the formula."""
    link = fit(all_reduces(num_ranks, latency_s, bytes_per_s), num_ranks)
    assert link.latency_s == pytest.approx(latency_s, rel=0.01)
    assert link.bytes_per_s == pytest.approx(bytes_per_s, rel=0.01)
    assert link.worst_factor == pytest.approx(1, abs=0.01)


def test_how_far_a_link_is_off_where_it_is_worst() -> None:
    """When every second all-reduce takes 20 % longer than the formula says, a link between is 10 % off everywhere."""
    rows = all_reduces(8, *LINKS[0])
    for row in rows[::2]:
        row["seconds"] *= 1.2
    assert 1.09 < fit(rows, 8).worst_factor < 1.2
