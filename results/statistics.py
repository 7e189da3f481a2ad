"""Intervals for rates and for ratios of rates, by resampling window parts.

The percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3) for a ratio of
sums: parts are drawn with replacement, their steps and their seconds summed, the one divided by the other. The
interval speaks of the variation between the iterations of a run, not between runs or seeds. It is too narrow with as
few parts as the `ddppo` protocol's five, and where neighbouring parts depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from results.parts import Part

NUM_DRAWS = 2000
LEAST_PARTS = 3
LEVEL = 0.95


def bootstrap_rate(parts: Sequence[Part], rng: np.random.Generator) -> tuple[float, float] | None:
    """The 95 % interval of sum(learned) / sum(seconds); None with fewer than 3 parts."""
    if len(parts) < LEAST_PARTS:
        return None
    return _percentiles(_draw_rates(parts, rng))


def bootstrap_ratio(
    parts_a: Sequence[Part], parts_b: Sequence[Part], rng: np.random.Generator
) -> tuple[float, float] | None:
    """The 95 % interval of a's rate / b's rate, drawn independently.

    None when either has fewer than 3 parts, or b learned nothing in some draw.
    """
    if min(len(parts_a), len(parts_b)) < LEAST_PARTS:
        return None
    rates_a, rates_b = _draw_rates(parts_a, rng), _draw_rates(parts_b, rng)
    if not rates_b.all():
        return None
    return _percentiles(rates_a / rates_b)


def _draw_rates(parts: Sequence[Part], rng: np.random.Generator) -> NDArray[np.float64]:
    learned = np.array([part.learned for part in parts], dtype=np.float64)
    seconds = np.array([part.seconds for part in parts])
    drawn = rng.integers(len(parts), size=(NUM_DRAWS, len(parts)))
    rates: NDArray[np.float64] = learned[drawn].sum(axis=1) / seconds[drawn].sum(axis=1)
    return rates


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
