"""How many times as fast one system is as another, from runs in pairs: with the same seed, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from rlbench.results.statistics import intervals
from rlbench.results.summary.document import Estimate


def ratio_of_pairs(rates: Sequence[float], references: Sequence[float]) -> Estimate:
    """The ratio of the means, with the 95 % interval over the pairs; without one if there is only one pair.

    Args:
        rates: steps/s of one system, above 0, [K].
        references: steps/s of the other system, in the same order, [K].
    """
    assert len(rates) == len(references) > 0
    units = intervals.of_pairs(rates, references)
    if units is None:
        return Estimate(value=rates[0] / references[0])
    ends = intervals.interval(units)
    assert ends is not None  # all are above 0
    return Estimate(value=units.rate, low=ends[0], high=ends[1], units="seeds", num_units=len(rates))
