from __future__ import annotations

import pytest

from rlbench.results.verdicts.paired import ratio_of_pairs


def test_what_a_seed_does_to_both_is_not_noise() -> None:
    """Rates that differ tenfold between seeds, and ratios that hardly do: a narrow interval around that of means."""
    references = [100.0, 1000.0, 300.0, 500.0]
    rates = [2.0 * 100, 1.99 * 1000, 2.01 * 300, 2.0 * 500]
    ratio = ratio_of_pairs(rates, references)
    assert ratio.value == pytest.approx(sum(rates) / sum(references))
    assert ratio.low is not None
    assert ratio.high is not None
    assert 1.95 < ratio.low < ratio.value < ratio.high < 2.05
    assert (ratio.units, ratio.num_units) == ("seeds", 4)
    assert ratio == ratio_of_pairs(rates, references), "the same draws"


def test_a_single_pair_says_nothing_of_others() -> None:
    """It has a ratio and no interval."""
    ratio = ratio_of_pairs([200.0], [100.0])
    assert (ratio.value, ratio.low, ratio.high) == (2.0, None, None)
