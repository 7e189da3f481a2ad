"""95 % intervals of rates, and of ratios of rates, from what was repeated.

A *unit* is one repetition: a seed where a cell was run with several, a part of the window where it was run once. The
interval of several seeds speaks of other seeds as well; that of one run speaks of that run alone, and allows for parts
that depend on their neighbours. `docs/statistics.md` derives the intervals and says how often they hold the truth.

The standard error is that of the logarithm of a rate. Of independent units its square is HC2's; of parts of a run it is
the variance that a circular block bootstrap has when it is drawn without end (Politis and Romano, A circular
block-resampling procedure for stationary data, 1992), divided by the share of the true variance that it shows.
Student's t makes an interval of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbench.results.records.parts import Part

Floats = NDArray[np.float64]

LEVEL = 0.95
LEAST_PARTS = 3
"""Fewest parts of one run that make an interval."""
LEAST_SEEDS = 2
MOST_FACTOR = 2.0
"""An interval from less than half of a figure to more than twice of it says nothing worth printing."""

MOST_HALF = 100.0
"""Half of the widest interval, of a rate's logarithm: two runs at a level near 1 may have one beyond all numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Units:
    """The amounts of all repetitions of one rate and the seconds that they took, [n] each.

    Of pairs: rates, and the rates that they are divided by.
    """

    amounts: Floats
    seconds: Floats
    block: int = 1
    """Number of neighbouring units in a block; 1 where units are independent."""
    dependence: float | None = None
    """Estimated correlation of neighbours; None where units are known to be independent."""

    def __post_init__(self) -> None:
        """Checks that a rate can be made of it."""
        assert self.amounts.shape == self.seconds.shape == (len(self.amounts),)
        assert 1 <= self.block <= max(1, len(self.amounts))
        assert self.block == 1 or self.dependence is not None

    @property
    def rate(self) -> float:
        """All amounts / all seconds."""
        return float(self.amounts.sum() / self.seconds.sum())

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the estimated variance."""
        num = len(self.amounts)
        if self.dependence is None:
            return num - 1.0
        rho = max(0.0, self.dependence)
        return 1 / (1 / (num - 1) + math.sqrt(_bound(num)) * 2 * (1 + rho) / (num * (1 - rho)))


def of_parts(parts: Sequence[Part]) -> Units | None:
    """Makes units of the parts of one run's window; None with fewer than `LEAST_PARTS`."""
    if len(parts) < LEAST_PARTS:
        return None
    amounts, seconds = np.array([part.learned for part in parts], float), np.array([part.seconds for part in parts])
    surplus = amounts - amounts.sum() / seconds.sum() * seconds  # what a part adds to the rate, but for a factor
    return Units(amounts=amounts, seconds=seconds, block=block_length(surplus), dependence=dependence(surplus))


def of_seeds(rates: Sequence[float]) -> Units | None:
    """Makes units of runs that differ only in their seeds; each counts the same. None with fewer than `LEAST_SEEDS`."""
    if len(rates) < LEAST_SEEDS:
        return None
    return Units(amounts=np.array(rates, float), seconds=np.ones(len(rates)))


def of_pairs(rates: Sequence[float], references: Sequence[float]) -> Units | None:
    """Pairs of runs with the same seed, as units of rates / references; None with fewer than `LEAST_SEEDS`.

    What both runs of a pair share, such as the seed or a machine that is slow for a while, cancels in the ratio.
    """
    if len(rates) < LEAST_SEEDS:
        return None
    return Units(amounts=np.array(rates, float), seconds=np.array(references, float))


def dependence(values: Floats) -> float:
    """The correlation of neighbours in a series [n], without the bias of its estimate; 0 where n tells nothing."""
    num, deviations = len(values), values - values.mean()
    variance, bound = (deviations**2).sum(), _bound(num)
    if not bound or not variance:
        return 0.0
    correlation = (deviations[1:] * deviations[:-1]).sum() / variance
    return float(np.clip((num * correlation + 1) / (num - 3), -bound, bound))


def _bound(num: int) -> float:
    """How large a correlation of neighbours may be said to be."""
    return max(0.0, 1 - 4 / num)


def block_length(values: Floats) -> int:
    """The best number of neighbours in a block, for a series [n]."""
    num, rho = len(values), max(0.0, dependence(values))
    least = max(1, min((num - 1) // 2, round(math.cbrt(num))))
    best = round(math.cbrt(6 * num * (rho / (1 - rho**2)) ** 2))
    return max(least, min(best, num // 3))


def interval(units: Units, *, level: float = LEVEL) -> tuple[float, float] | None:
    """The interval of a rate; None where a block of units has none."""
    variance = _variance(units)
    return None if variance is None else _around(units.rate, half_width(math.sqrt(variance), units.freedom, level))


def ratio_interval(a: Units, b: Units, *, level: float = LEVEL) -> tuple[float, float] | None:
    """The interval of a's rate / b's rate, which are independent; None where a block of either has no rate."""
    variances = _variance(a), _variance(b)
    if variances[0] is None or variances[1] is None:
        return None
    shares = variances[0] ** 2 / a.freedom + variances[1] ** 2 / b.freedom
    variance = variances[0] + variances[1]
    freedom = variance**2 / shares if shares else 1.0  # Welch and Satterthwaite
    return _around(a.rate / b.rate, half_width(math.sqrt(variance), freedom, level))


def says_nothing(ends: tuple[float, float]) -> bool:
    """Whether an interval is wider than `MOST_FACTOR` allows."""
    return ends[1] > MOST_FACTOR**2 * ends[0]


def needed(ends: tuple[float, float], num: int) -> int:
    """How many units as uneven as these `num` an interval needs to say something.

    Its width falls with the root of their number, and with Student's factor for as many.
    """
    error = math.log(ends[1] / ends[0]) / 2 / half_width(1.0, num - 1) * math.sqrt(num)  # of one unit
    return next(
        more
        for more in itertools.count(num + 1)
        if half_width(error / math.sqrt(more), more - 1) <= math.log(MOST_FACTOR)
    )


def half_width(standard_error: float, freedom: float, level: float = LEVEL) -> float:
    """Half of Student's interval."""
    from scipy import special

    return float(special.stdtrit(freedom, (1 + level) / 2) * standard_error)


def _around(rate: float, half: float) -> tuple[float, float]:
    factor = math.exp(min(half, MOST_HALF))
    return rate / factor, rate * factor


def _variance(units: Units) -> float | None:
    """The variance of the logarithm of the rate; None where a block of units has no rate."""
    num, block = len(units.amounts), units.block
    if not (_sums(units.amounts, block).all() and _sums(units.seconds, block).all()):
        return None
    # How far the rate of each unit is from that of all, weighed by its seconds; their sum is 0.
    surplus = units.amounts / units.amounts.sum() - units.seconds / units.seconds.sum()
    if units.dependence is None:  # a unit with a large share of the seconds pulls the rate towards itself (HC2)
        return float((surplus**2 / (1 - units.seconds / units.seconds.sum())).sum())
    return float((_sums(surplus, block) ** 2).sum()) / block / _shown(num, block, units.dependence)


def _sums(series: Floats, block: int) -> Floats:
    """The sum of each block of neighbours on a circle, by where it starts, [n]."""
    circle = np.concatenate([series, series[: block - 1]])
    sums: Floats = np.lib.stride_tricks.sliding_window_view(circle, block).sum(1)
    return sums


def _shown(num: int, block: int, rho: float) -> float:
    """The share of the variance of the mean of an AR(1) series that circular blocks of it show in the mean."""
    lags = np.arange(num)
    weights, falling = 1 - lags / num, rho**lags
    on_circle = weights * falling + (1 - weights) * rho ** (num - lags)
    variance = (2 * (weights * falling).sum() - 1) / num
    in_block = 2 * ((1 - lags[:block] / block) * on_circle[:block]).sum() - 1
    return float((in_block - block * variance) / (num * variance))
