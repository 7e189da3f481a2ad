"""The claims that a reproduced table is held to: predicted figures against published ones, and against each other.

Tolerances are fractions: 0.08 is 8 %. Figures measured on emulated GPUs are shown beside them, and not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from rlbench.harness.commands.reproduce.table import ClaimOutcome, Filled
from rlbench.reports.figures.format import number


@dataclass(frozen=True, kw_only=True, slots=True)
class EachWithin:
    """Every prediction is within a tolerance of its published figure; a line for each."""

    names: tuple[str, ...]
    tolerance: float

    def outcomes(self, rows: Mapping[str, Filled]) -> Iterator[ClaimOutcome]:
        """Yields an outcome for each row."""
        for name in self.names:
            error = _error(rows[name])
            yield ClaimOutcome(
                text=f"{name}, predicted against published",
                value=f"{error:+.1%}",
                bound=f"within {self.tolerance:.0%}",
                holds=abs(error) <= self.tolerance,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class MostWithin:
    """At least `least` predictions are within a tolerance of their published figures; the others are named."""

    names: tuple[str, ...]
    least: int
    tolerance: float

    def outcomes(self, rows: Mapping[str, Filled]) -> Iterator[ClaimOutcome]:
        """Yields one outcome."""
        errors = {name: _error(rows[name]) for name in self.names}
        beyond = {name: error for name, error in errors.items() if abs(error) > self.tolerance}
        num_within = len(errors) - len(beyond)
        named = ", ".join(f"{name} ({error:+.1%})" for name, error in beyond.items())
        yield ClaimOutcome(
            text=f"predictions within {self.tolerance:.0%} of the published figure",
            value=f"{num_within} of {len(errors)}",
            bound=f"at least {self.least}",
            holds=num_within >= self.least,
            remark=f"beyond {self.tolerance:.0%}: {named or 'none'}",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanErrorWithin:
    """The mean absolute error of predictions has a bound, or is only reported."""

    names: tuple[str, ...]
    what: str
    """What the rows have in common."""
    most: float | None = None

    def outcomes(self, rows: Mapping[str, Filled]) -> Iterator[ClaimOutcome]:
        """Yields one outcome."""
        mean = fmean(abs(_error(rows[name])) for name in self.names)
        yield ClaimOutcome(
            text=f"mean absolute error of the predictions, {self.what}",
            value=f"{mean:.1%}",
            bound="none" if self.most is None else f"at most {self.most:.0%}",
            holds=None if self.most is None else mean <= self.most,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RatioWithin:
    """The ratio of two predictions is within a tolerance of the ratio of the published figures."""

    above: str
    below: str
    tolerance: float

    @property
    def names(self) -> tuple[str, str]:
        """Both rows."""
        return self.above, self.below

    def outcomes(self, rows: Mapping[str, Filled]) -> Iterator[ClaimOutcome]:
        """Yields one outcome."""
        above, below = rows[self.above], rows[self.below]
        predicted = _predicted(above) / _predicted(below)
        published = _published(above) / _published(below)
        error = predicted / published - 1
        yield ClaimOutcome(
            text=f"{self.above} / {self.below}, {number(predicted)} predicted against {number(published)} published",
            value=f"{error:+.1%}",
            bound=f"within {self.tolerance:.0%}",
            holds=abs(error) <= self.tolerance,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AgainstPrediction:
    """The relative difference of a prediction from another one is from `low` to `high`, or is only reported."""

    name: str
    other: str
    low: float = -1.0
    high: float | None
    remark: str | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Both rows."""
        return self.name, self.other

    def outcomes(self, rows: Mapping[str, Filled]) -> Iterator[ClaimOutcome]:
        """Yields one outcome."""
        off = _predicted(rows[self.name]) / _predicted(rows[self.other]) - 1
        if self.high is None:
            bound = "none"
        else:
            bound = f"within {self.high:.0%}" if self.low == -self.high else f"{self.high:+.0%} or less"
        yield ClaimOutcome(
            text=f"{self.name} against {self.other}, both predicted",
            value=f"{off:+.1%}",
            bound=bound,
            holds=None if self.high is None else self.low <= off <= self.high,
            remark=self.remark,
        )


def _predicted(filled: Filled) -> float:
    assert filled.predicted is not None, filled.row.name
    return filled.predicted


def _published(filled: Filled) -> float:
    assert filled.row.published is not None, filled.row.name
    return filled.row.published


def _error(filled: Filled) -> float:
    return _predicted(filled) / _published(filled) - 1
