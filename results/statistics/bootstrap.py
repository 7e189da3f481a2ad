"""Intervals for rates and for ratios of rates, by resampling what was repeated.

What was repeated are *units*. Where a cell was run with several seeds, its seeds are the units, and the interval
speaks of other seeds as well. A single run has its window parts, and the interval speaks of that run alone: parts that
follow each other depend on each other (an episode lasts longer than an iteration), so neighbours are drawn together.

The bootstrap draws units with replacement, blocks of neighbours of a circle where they depend on each other (Politis
and Romano, A circular block-resampling procedure for stationary data, 1992). What it gives is the standard error of
the logarithm of a rate, or of the ratio of two that are drawn independently. Percentiles of the draws would be too
narrow with few units, for two reasons (Hesterberg, What teachers should know about the bootstrap, The American
Statistician 69(4), 2015), and each is set right:

- Draws spread less than rates do: n independent units show (n - 1) / n of the variance, blocks less, and where blocks
  end dependence is lost as well. The share that they show on average is known for a series in which each value
  depends on the one before (AR(1), rho), so deviations are divided by its root. Without it blocks of n^(1/3) cover
  83 % at rho = 0.6, with 20 or 40 parts alike.
- A spread that was estimated asks for Student's t. Of n independent units it has n - 1 degrees of freedom. Of a series
  rho is estimated too: relative to the long-run variance s^2 / (1 - rho)^2 the errors of s^2 and of rho have the
  variances 2 / (n - 1) and 4 (1 + rho) / (n (1 - rho)) (Bartlett, 1946), and Satterthwaite's rule makes degrees of
  freedom of their sum. A ratio has what Welch and Satterthwaite make of both.

rho is the correlation of neighbours, less its bias -(1 + 3 rho) / n (Kendall; Marriott and Pope, Biometrika 41, 1954),
and between plus and minus 1 - 4 / n: a series says nothing of dependence over more than a fraction of itself, and of
3 or 4 parts nothing at all. As the bound keeps rho from being far off, the second variance counts sqrt(1 - 4 / n)
times (found by simulation). Blocks are as long as is best for AR(1), (6 n rho^2 / (1 - rho^2)^2)^(1/3) (Politis and
White, Automatic block-length selection for the dependent bootstrap, Econometric Reviews 23(1), 2004), at least about
n^(1/3), at most n / 3.

Of 20,000 simulated experiments the intervals hold the truth in (AR(1), lognormal seconds, cv 3 to 10 %):

    one run, independent parts          94.8 to 96.2 %    3 to 40 parts
    one run, rho = 0.3                  94.5 to 95.1 %    10 to 100 parts;     5 parts 93.3 %
    one run, rho = 0.6                  93.8 to 95.0 %    20 to 100 parts;     10 parts 91.9 %, 5 parts 87.1 %
    ratio of two runs, rho 0 to 0.6     95.3 to 96.4 %    12 parts against 8;  5 against 5 94.2 to 96.7 % (rho 0.3, 0)
    seeds                               94.9 to 95.2 %    2 to 10 seeds
    ratio of two cells of seeds         93.2 to 96.6 %    3 to 10 seeds, spreads alike or 1 to 3
    ratio of runs in pairs              92.4 to 96.3 %    2 to 10 seeds, whose rates differ by 0 to 60 %, runs by 3 %

Not held: few parts that depend strongly, as above, which no method can tell from a few lucky ones; a slow wave under
noise, of which neighbours show little (AR(1) of 0.8 under as much noise: 84 to 87 % with 5 to 100 parts); two seeds:
2 against 5 that spread a third as much 90 %, 2 against 2 that spread alike 97.6 %, both as Welch's test (scipy).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.records.parts import Part

Floats = NDArray[np.float64]

NUM_DRAWS = 2000
LEVEL = 0.95
LEAST_PARTS = 3
"""Of one run; of seeds two are enough."""
LEAST_SEEDS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Units:
    """What one rate was measured with, again and again: amounts and the seconds that they took, [n] each.

    Of pairs: rates and those that they are held against.
    """

    amounts: Floats
    seconds: Floats
    block: int = 1
    """So many neighbours are drawn together; 1 where units are independent."""
    dependence: float | None = None
    """How neighbours are correlated, as far as it could be estimated; None where units are known to be independent."""

    def __post_init__(self) -> None:
        """Checks that a rate can be made of it."""
        assert self.amounts.shape == self.seconds.shape == (len(self.amounts),)
        assert 1 <= self.block <= max(1, len(self.amounts))

    @property
    def rate(self) -> float:
        """All amounts / all seconds."""
        return float(self.amounts.sum() / self.seconds.sum())

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance that draws show."""
        num = len(self.amounts)
        if self.dependence is None:
            return num - 1.0
        rho = max(0.0, self.dependence)
        return 1 / (1 / (num - 1) + math.sqrt(_bound(num)) * 2 * (1 + rho) / (num * (1 - rho)))


def of_parts(parts: Sequence[Part]) -> Units | None:
    """The parts of one run's window; None with fewer than `LEAST_PARTS`."""
    if len(parts) < LEAST_PARTS:
        return None
    amounts, seconds = np.array([part.learned for part in parts], float), np.array([part.seconds for part in parts])
    surplus = amounts - amounts.sum() / seconds.sum() * seconds  # what a part adds to the rate, but for a factor
    return Units(amounts=amounts, seconds=seconds, block=block_length(surplus), dependence=dependence(surplus))


def of_seeds(rates: Sequence[float]) -> Units | None:
    """Runs that differ in their seeds alone, each of which counts the same; None with fewer than `LEAST_SEEDS`."""
    if len(rates) < LEAST_SEEDS:
        return None
    return Units(amounts=np.array(rates, float), seconds=np.ones(len(rates)))


def of_pairs(rates: Sequence[float], references: Sequence[float]) -> Units | None:
    """Pairs of runs with the same seed, as units of rates / references; None with fewer than `LEAST_SEEDS`.

    What both runs of a pair share, the draws of the seed and a machine that is slow for a while, is not in the ratio.
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
    """How many neighbours to draw together of a series [n]."""
    num, rho = len(values), max(0.0, dependence(values))
    least = max(1, min((num - 1) // 2, round(math.cbrt(num))))
    best = round(math.cbrt(6 * num * (rho / (1 - rho**2)) ** 2))
    return max(least, min(best, num // 3))


def interval(
    units: Units, generator: np.random.Generator, *, num_draws: int = NUM_DRAWS, level: float = LEVEL
) -> tuple[float, float] | None:
    """The interval of a rate; None where some draw has none."""
    draws = _deviations(units, generator, num_draws)
    return None if draws is None else _around(units.rate, half_width(draws, units.freedom, level))


def ratio_interval(
    a: Units, b: Units, generator: np.random.Generator, *, num_draws: int = NUM_DRAWS, level: float = LEVEL
) -> tuple[float, float] | None:
    """The interval of a's rate / b's rate, drawn independently; None where some draw of either has no rate."""
    of_a, of_b = _deviations(a, generator, num_draws), _deviations(b, generator, num_draws)
    if of_a is None or of_b is None:
        return None
    variances = float(of_a.var()), float(of_b.var())
    shares = variances[0] ** 2 / a.freedom + variances[1] ** 2 / b.freedom
    freedom = sum(variances) ** 2 / shares if shares else 1.0
    return _around(a.rate / b.rate, half_width(of_a - of_b, freedom, level))


def half_width(deviations: Floats, freedom: float, level: float = LEVEL) -> float:
    """Half of the interval of a figure whose draws, made as wide as the figure spreads, deviate from it by so much."""
    from scipy import special

    return float(special.stdtrit(freedom, (1 + level) / 2) * deviations.std())


def _around(rate: float, half: float) -> tuple[float, float]:
    return rate * math.exp(-half), rate * math.exp(half)


def _deviations(units: Units, generator: np.random.Generator, num_draws: int) -> Floats | None:
    """Logarithms of draws of the rate less that of the rate, [num_draws], with the spread that the rate has."""
    num, block = len(units.amounts), units.block
    num_blocks = -(-num // block)
    starts = generator.integers(num, size=(num_draws, num_blocks))
    amounts, seconds = (_sums(series, block)[starts].sum(1) for series in (units.amounts, units.seconds))
    if not amounts.all() or not seconds.all():
        return None
    # The blocks hold as many units as there are, or a few more.
    shown = num / (num_blocks * block) * _shown(num, block, units.dependence or 0.0)
    deviations: Floats = np.log(amounts / seconds / units.rate) / math.sqrt(shown)
    return deviations


def _sums(series: Floats, block: int) -> Floats:
    """The sum of each block of neighbours of a circle, by where it starts, [n]."""
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
