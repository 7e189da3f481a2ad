"""What a table of a paper is here: rows with the published figure and the point that gives ours, and checks of them.

A definition (`papers.py`) is a `Table`; its points get rates (`predicting.py`, `measuring.py`), its rows with them
figures (`fill`), and its checks (`checks.py`) say which claims hold (`judge`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Fit = Literal["fitted", "held out", "-"]
"""Whether a profile was fitted to a published figure, or the figure is one that the profile had no part in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """What one rate is of, over all seeds."""

    system: str | None
    """As `--systems` takes one; None: the environments alone, as fast as the cores of their GPUs step them."""
    gpus: int = 1
    scenario: str
    """As `--scenario` takes one."""
    workload: str = "homogeneous"


Rates = Mapping[Point, float]
"""Env steps/s; a point of which there is none is not in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One figure of the table."""

    name: str
    """By which checks and messages call it."""
    labels: tuple[str, ...]
    """What stands in the columns before the figures."""
    published: float | None
    """None where the paper states no number."""
    fit: Fit
    point: Point | None
    """None where there is no model of it."""
    base: Point | None = None
    """The figure is a speed-up over it."""
    frames_per_env_step: int = 1
    """The figure is in frames, where that is not 1."""

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
        """Of the prediction, relative to the published figure."""
        return self._error(self.predicted)

    @property
    def measured_error(self) -> float | None:
        """Of the runs on emulated GPUs, relative to the published figure."""
        return self._error(self.measured)

    def _error(self, value: float | None) -> float | None:
        return None if value is None or self.row.published is None else value / self.row.published - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a check found."""

    text: str
    """What is checked."""
    value: str
    bound: str
    holds: bool | None
    """None: there is no bound, the value is printed for the reader."""
    remark: str | None = None
    """A further line."""


class Check(Protocol):
    """A claim about predicted figures."""

    @property
    def names(self) -> Sequence[str]:
        """Of the rows that it is about."""

    def outcomes(self, rows: Mapping[str, Filled]) -> Iterator[Outcome]:
        """What it finds, a line each. The rows that it is about have a prediction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table of a paper, how it is predicted, and what is checked."""

    name: str
    published: tuple[str, ...]
    """Names of the tables of `results.published` that it is made of."""
    unit: str
    """Of its figures."""
    titles: tuple[str, ...]
    """Of the columns before the figures."""
    rows: tuple[Row, ...]
    checks: tuple[Check, ...]
    note: str | None = None
    """What else a reader must know, in a line."""
    protocol: str = "steady"
    seconds: float | None = None
    """Of the profile, in each predicted run; None: as long as the protocol says."""
    num_seeds: Callable[[int], int]
    """How many runs are predicted for so many GPUs: seeds 0, 1, 2, …"""
    run_options: str
    """What `rlbench run` is told, beside systems, GPUs, scenarios and workload, to measure it."""

    def __post_init__(self) -> None:
        """Checks that checks speak of rows that are there and have a model."""
        modelled = [row.name for row in self.rows if row.point is not None]
        assert len({row.name for row in self.rows}) == len(self.rows), self.name
        assert {name for check in self.checks for name in check.names} <= set(modelled), self.name

    @property
    def points(self) -> list[Point]:
        """What rates are needed, each once, in order."""
        needed = [point for row in self.rows for point in (row.base, row.point) if point is not None]
        return list(dict.fromkeys(needed))


def fill(table: Table, predicted: Rates, measured: Rates) -> dict[str, Filled]:
    """The rows by name, with our figures."""
    return {
        row.name: Filled(row=row, predicted=row.value(predicted), measured=row.value(measured)) for row in table.rows
    }


def judge(table: Table, rows: Mapping[str, Filled]) -> list[Outcome]:
    """What the checks of the table find."""
    return [outcome for check in table.checks for outcome in check.outcomes(rows)]
