"""A table of a paper: rows with the published figure and the point that gives ours, and checks of them.

`papers.py` and `sample_factory.py` define each `PaperTable`. `predicting.py` and `measuring.py` give rates for its
points, `fill` turns the rates into figures for its rows, and `judge` asks its checks (`claims.py`) which claims hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rlbench.harness.predicting.points import Length, RatePoint, Rates

Fit = Literal["fitted", "held out", "-"]
"""Whether a profile was fitted to a published figure, or the figure is one that the profile had no part in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One figure of the table."""

    name: str
    """What checks and messages call it."""
    labels: tuple[str, ...]
    """Text of the columns before the figures."""
    published: float | None
    """None where the paper states no number."""
    fit: Fit
    point: RatePoint | None
    """None where there is no model of it."""
    base: RatePoint | None = None
    """The point that the figure is a speed-up over; None: it is a rate."""
    frames_per_env_step: int = 1
    """Where this is not 1, the figure is in frames."""

    @property
    def points(self) -> tuple[RatePoint, ...]:
        """The points whose rates it needs."""
        return tuple(point for point in (self.base, self.point) if point is not None)

    def value(self, rates: Rates) -> float | None:
        """Our figure, from our rates; None where one is missing."""
        rate = None if self.point is None else rates.get(self.point)
        base = 1.0 if self.base is None else rates.get(self.base)
        return None if rate is None or base is None else rate / base * self.frames_per_env_step


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """A row with our figures."""

    row: Row
    predicted: float | None
    measured: float | None

    @property
    def predicted_error(self) -> float | None:
        """Error of the prediction, relative to the published figure."""
        return self._error(self.predicted)

    @property
    def measured_error(self) -> float | None:
        """Error of the runs on emulated GPUs, relative to the published figure."""
        return self._error(self.measured)

    def _error(self, value: float | None) -> float | None:
        return None if value is None or self.row.published is None else value / self.row.published - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimOutcome:
    """What a check found."""

    text: str
    """What is checked."""
    value: str
    bound: str
    holds: bool | None
    """None: there is no bound, the value is printed for the reader."""
    remark: str | None = None
    """A further line."""


class Claim(Protocol):
    """A claim about predicted figures."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the rows that it is about."""

    def outcomes(self, rows: Mapping[str, Filled]) -> Iterator[ClaimOutcome]:
        """Yields what it finds, a line each. The rows that it is about have a prediction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fits:
    """How a profile is fitted to figures of a table, for some of them to be left out."""

    scenario: str
    """`emulated/…`, without settings."""
    start: Mapping[str, float]
    """The keys that are fitted, and numbers to begin with that owe nothing to the table."""
    leave_out: tuple[str, ...]
    """Titles of columns: figures with the same label there are left out together."""
    length: Length
    """How long its points are predicted for, again and again."""

    def covers(self, row: Row) -> bool:
        """Whether the profile is fitted to a row."""
        names = {point.scenario.partition(":")[0] for point in row.points}
        return row.fit == "fitted" and row.published is not None and names == {self.scenario}


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperTable:
    """A table of a paper, how it is predicted, and what is checked."""

    name: str
    published: tuple[str, ...]
    """Names of the tables in `results.published` that it is made from."""
    unit: str
    """Unit of its figures."""
    titles: tuple[str, ...]
    """Titles of the columns before the figures."""
    rows: tuple[Row, ...]
    checks: tuple[Claim, ...]
    note: str | None = None
    """Anything else that a reader must know, in one line."""
    length: Length
    """How long its points are predicted for."""
    fits: tuple[Fits, ...] = ()
    """How its profiles are fitted to it; empty where that takes other figures, too."""
    run_options: str
    """Options of `rlbench run` to measure it, beside systems, GPUs, scenarios and workload."""

    def __post_init__(self) -> None:
        """Asserts that row names are unique, and that checks name rows with a model."""
        modelled = [row.name for row in self.rows if row.point is not None]
        assert len({row.name for row in self.rows}) == len(self.rows), self.name
        assert {name for check in self.checks for name in check.names} <= set(modelled), self.name

    @property
    def points(self) -> list[RatePoint]:
        """The points whose rates are needed, each once, in order."""
        return list(dict.fromkeys(point for row in self.rows for point in row.points))


def errors_by_fit(rows: Iterable[Filled]) -> dict[Fit, list[float]]:
    """The absolute relative errors of the predictions, apart by whether the profile was fitted to the figures."""
    found: dict[Fit, list[float]] = {"fitted": [], "held out": []}
    for filled in rows:
        if filled.row.fit in found and filled.predicted_error is not None:
            found[filled.row.fit].append(abs(filled.predicted_error))
    return {fit: errors for fit, errors in found.items() if errors}


def fill(table: PaperTable, predicted: Rates, measured: Rates) -> dict[str, Filled]:
    """The rows by name, with our figures."""
    return {
        row.name: Filled(row=row, predicted=row.value(predicted), measured=row.value(measured)) for row in table.rows
    }


def judge(table: PaperTable, rows: Mapping[str, Filled]) -> list[ClaimOutcome]:
    """What the checks of the table find."""
    return [outcome for check in table.checks for outcome in check.outcomes(rows)]
