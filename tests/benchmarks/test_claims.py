from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gate.claims import Claim
from rlbench.results.summary.document import Estimate, Finding
from rlbench.results.verdicts.paired import ratio_of_pairs


def claim(low: float | None, high: float | None, *, above: bool = True) -> Claim:
    """A claim about 1.5."""
    return Claim(what="a / b", ratio=Estimate(value=1.5, low=low, high=high), limit=1.5, above=above)


@pytest.mark.parametrize(
    ("low", "high", "must_be_above", "must_be_below"),
    [
        (1.6, 2.0, "passed", "regression"),
        (1.0, 1.4, "regression", "passed"),
        (1.4, 1.6, "inconclusive", "inconclusive"),
        (1.5, 1.5, "inconclusive", "inconclusive"),
        (None, None, "inconclusive", "inconclusive"),
    ],
)
def test_the_whole_interval_decides(
    low: float | None, high: float | None, must_be_above: str, must_be_below: str
) -> None:
    """Green and red take an interval that leaves the limit out; without one, or around the limit, nothing was shown."""
    assert claim(low, high).outcome == must_be_above
    assert claim(low, high, above=False).outcome == must_be_below


def test_pairs_that_agree_are_green_and_red_whatever_the_seeds() -> None:
    """Rates of a seed that differ tenfold between seeds, with a ratio of about 2: above 1.5, and not above 2.5."""
    references = [100.0, 1000.0, 300.0, 500.0]
    rates = [2.0 * 100, 1.9 * 1000, 2.1 * 300, 2.0 * 500]
    ratio = ratio_of_pairs(rates, references)
    assert Claim(what="a / b", ratio=ratio, limit=1.5, above=True).outcome == "passed"
    assert Claim(what="a / b", ratio=ratio, limit=2.5, above=True).outcome == "regression"


def test_lines_say_all() -> None:
    """Outcome, ratio, interval, limit, what it is of, and what the runs say against it."""
    (line,) = claim(1.25, 1.75).lines()
    assert line == "inconclusive   1.50 (1.25 to 1.75), must be above 1.5: a / b"
    spoilt = replace(claim(None, None), spoilt_by=[Finding(severity="warning", text="busy", runs=[])])
    first, second = spoilt.lines()
    assert "no interval" in first
    assert second == "  warning: busy"
