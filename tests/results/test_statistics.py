from __future__ import annotations

import numpy as np
import pytest

from results.parts import Part
from results.statistics import bootstrap_rate, bootstrap_ratio
from tests.results.records import make_parts


def test_constant_rate_has_no_spread() -> None:
    """When every part has the same rate, so has every draw."""
    interval = bootstrap_rate(make_parts([100.0] * 5), np.random.default_rng(0))
    assert interval == pytest.approx((100, 100))


def test_rate_is_a_ratio_of_sums() -> None:
    """A slow part weighs by its seconds: 3 parts at 100 and 3 at 50 per second of 1,000 steps each are 66.7, not 75."""
    interval = bootstrap_rate(make_parts([100.0, 50.0] * 300), np.random.default_rng(0))
    assert interval is not None
    assert interval[0] < 200 / 3 < interval[1]
    assert interval[1] - interval[0] < 5


@pytest.mark.parametrize("num_parts", [0, 1, 2])
def test_too_few_parts(num_parts: int) -> None:
    """Fewer than 3 parts give no interval."""
    few, enough = make_parts([100.0] * num_parts), make_parts([100.0] * 3)
    rng = np.random.default_rng(0)
    assert bootstrap_rate(few, rng) is None
    assert bootstrap_ratio(few, enough, rng) is None
    assert bootstrap_ratio(enough, few, rng) is None


def test_interval_covers_the_truth() -> None:
    """Over 200 runs of 30 parts around 100 steps/s, 90 to 99 % of the 95 % intervals hold the true rate."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        parts, begin_s = [], 0.0
        for iteration, seconds in enumerate(rng.normal(10, 1, 30)):
            parts.append(Part(iteration=iteration, begin_s=begin_s, end_s=begin_s + seconds, learned=1000))
            begin_s += seconds
        interval = bootstrap_rate(parts, rng)
        assert interval is not None
        hits += interval[0] <= 100 <= interval[1]
    assert 0.90 <= hits / 200 <= 0.99


def test_same_generator_same_interval() -> None:
    """Equal generators give equal intervals."""
    parts = make_parts([90.0, 100.0, 110.0, 95.0])
    first, second = (bootstrap_rate(parts, np.random.default_rng(7)) for _ in range(2))
    assert first == second


def test_ratio_to_a_base_that_learned_nothing() -> None:
    """A base without a learned step gives no interval rather than an infinite one."""
    idle = [Part(iteration=i, begin_s=i, end_s=i + 1, learned=0) for i in range(3)]
    assert bootstrap_ratio(make_parts([100.0] * 3), idle, np.random.default_rng(0)) is None
