from __future__ import annotations

from rlbench.harness.commands.reproduce.claims import (
    AgainstPrediction,
    EachWithin,
    MeanErrorWithin,
    MostWithin,
    RatioWithin,
)
from rlbench.harness.commands.reproduce.table import Claim, ClaimOutcome, Filled
from tests.harness.commands.reproduce.tiny_table import make_row


def filled(**figures: tuple[float, float | None]) -> dict[str, Filled]:
    """Rows by name, with predicted and published figure."""
    return {
        name: Filled(row=make_row(name, published), predicted=predicted, measured=None)
        for name, (predicted, published) in figures.items()
    }


def found(check: Claim, **figures: tuple[float, float | None]) -> list[tuple[str, str, bool | None]]:
    """What a check says of predicted and published figures: value, bound, whether it holds."""
    return [(one.value, one.bound, one.holds) for one in check.outcomes(filled(**figures))]


def test_each_prediction_has_a_tolerance() -> None:
    """`EachWithin` judges the relative error of each row, in either direction, the bound itself included."""
    check = EachWithin(names=("a", "b", "c", "d"), tolerance=0.125)
    assert found(check, a=(1.125, 1.0), b=(87.5, 100.0), c=(1.13, 1.0), d=(8.7, 10.0)) == [
        ("+12.5%", "within 12%", True),
        ("-12.5%", "within 12%", True),
        ("+13.0%", "within 12%", False),
        ("-13.0%", "within 12%", False),
    ]


def test_some_predictions_may_miss_and_are_named() -> None:
    """`MostWithin` counts the rows within the tolerance, and names the others with their errors in a further line."""
    check = MostWithin(names=("a", "b", "c"), least=2, tolerance=0.08)
    one_off = filled(a=(1.0, 1.0), b=(2.4, 2.0), c=(0.93, 1.0))
    assert list(check.outcomes(one_off)) == [
        ClaimOutcome(
            text="predictions within 8% of the published figure",
            value="2 of 3",
            bound="at least 2",
            holds=True,
            remark="beyond 8%: b (+20.0%)",
        )
    ]
    assert found(check, a=(1.0, 1.0), b=(2.4, 2.0), c=(0.9, 1.0)) == [("1 of 3", "at least 2", False)]
    (outcome,) = check.outcomes(filled(a=(1.0, 1.0), b=(2.0, 2.0), c=(1.0, 1.0)))
    assert outcome.remark == "beyond 8%: none"


def test_mean_errors_are_absolute() -> None:
    """`MeanErrorWithin` averages errors without their signs; without a bound it only tells."""
    figures = {"a": (1.06, 1.0), "b": (9.6, 10.0)}
    names, what = ("a", "b"), "both"
    assert found(MeanErrorWithin(names=names, what=what, most=0.06), **figures) == [("5.0%", "at most 6%", True)]
    assert found(MeanErrorWithin(names=names, what=what, most=0.04), **figures) == [("5.0%", "at most 4%", False)]
    assert found(MeanErrorWithin(names=names, what=what), **figures) == [("5.0%", "none", None)]


def test_ratios_are_held_against_published_ratios() -> None:
    """`RatioWithin` holds predicted / predicted against published / published."""
    check = RatioWithin(above="a", below="b", tolerance=0.12)
    assert found(check, a=(220.0, 300.0), b=(100.0, 150.0)) == [("+10.0%", "within 12%", True)]
    assert found(check, a=(170.0, 300.0), b=(100.0, 150.0)) == [("-15.0%", "within 12%", False)]


def test_predictions_are_held_against_each_other() -> None:
    """`AgainstPrediction` needs no published figure; it bounds how far two predictions are apart."""
    near = AgainstPrediction(name="a", other="b", low=-0.15, high=0.15)
    assert found(near, a=(90.0, None), b=(100.0, None)) == [("-10.0%", "within 15%", True)]
    assert found(near, a=(80.0, None), b=(100.0, None)) == [("-20.0%", "within 15%", False)]
    assert found(near, a=(120.0, None), b=(100.0, None)) == [("+20.0%", "within 15%", False)]
    told = AgainstPrediction(name="a", other="b", high=None, remark="why")
    assert found(told, a=(90.0, None), b=(100.0, None)) == [("-10.0%", "none", None)]
    below = AgainstPrediction(name="a", other="b", high=-0.30)
    assert found(below, a=(60.0, None), b=(100.0, None)) == [("-40.0%", "-30% or less", True)]
    assert found(below, a=(75.0, None), b=(100.0, None)) == [("-25.0%", "-30% or less", False)]
