"""Leaves figures of a table out, fits its profile to the others, and predicts what was left out.

A fit begins where nothing of the table is known, so that what is left out has no part in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from rich.text import Text

from rlbench.harness.commands.fit.command import LEAST_RATE, fit_with_progress, numbers_of, profile_document
from rlbench.harness.commands.fit.keys import keys_to_fit
from rlbench.harness.predicting.points import Planned
from rlbench.reports.figures import format as fmt
from rlbench.reports.terminal.table import make_table

if TYPE_CHECKING:
    from rich.console import Console

    from rlbench.harness.commands.reproduce.table import Fits, PaperTable, Row


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A figure, predicted by a profile that was fitted to others."""

    by: str
    """The column whose label the figures share that were left out with it."""
    label: str
    row: Row
    predicted: float
    low: float
    high: float
    """95 % interval."""

    @property
    def error(self) -> float:
        """Relative to what is published."""
        assert self.row.published is not None
        return self.predicted / self.row.published - 1

    @property
    def is_within(self) -> bool:
        """Whether the published figure is in the interval."""
        assert self.row.published is not None
        return self.low <= self.row.published <= self.high


def print_held_out(table: PaperTable, console: Console) -> None:
    """Fits and predicts all that a table leaves out, and prints it. Raises ValueError where it leaves nothing out."""
    if not table.fits:
        raise ValueError(f"reproduce {table.name} --held-out: its profiles are not fitted to several figures of it")
    found = [left for fits in table.fits for left in _left_out(table, fits, console)]
    grid = make_table()
    for title in ("left out", "figure"):
        grid.add_column(title, overflow="fold")
    for title in ("published", "predicted", "95% interval", "error"):
        grid.add_column(title, justify="right")
    for left in found:
        ends = f"{fmt.number(left.low)} to {fmt.number(left.high)}"
        figures = fmt.number(left.row.published), fmt.number(left.predicted), ends, f"{left.error:+.1%}"
        grid.add_row(Text(f"{left.by} {left.label}"), Text(left.row.name), *figures)
    console.print(grid)
    console.print()
    for line in _summary(found):
        console.print(Text(line), soft_wrap=True)


def _left_out(table: PaperTable, fits: Fits, console: Console) -> Iterator[LeftOut]:
    """The figures that one profile is fitted to, each left out once by each column."""
    rows = [row for row in table.rows if fits.covers(row)]
    planned = Planned(list(dict.fromkeys(point for row in rows for point in row.points)), fits.length)
    numbers = numbers_of(profile_document(fits.scenario)) | dict(fits.start)
    keys = keys_to_fit(numbers, fits.start)

    known: dict[tuple[float, ...], list[float]] = {}

    def predict(changed: Mapping[str, float]) -> list[float]:
        at = tuple(changed.values())
        if at not in known:  # all fits begin at the same numbers
            rates = planned.rates(changed, least=LEAST_RATE)
            known[at] = [row.value(rates) or LEAST_RATE for row in rows]
        return known[at]

    for by in fits.leave_out:
        column = table.titles.index(by)
        for label in dict.fromkeys(row.labels[column] for row in rows):
            is_left = [row.labels[column] == label for row in rows]
            figures = [None if left else row.published for row, left in zip(rows, is_left, strict=True)]
            fitted = fit_with_progress(keys, figures, predict, f"without {by} {label}: ")
            if not fitted.has_converged:
                console.print(Text(f"warning: the fit without {by} {label} has not settled"))
            ends = zip(fitted.predicted.tolist(), fitted.low.tolist(), fitted.high.tolist(), strict=True)
            for row, left, (predicted, low, high) in zip(rows, is_left, ends, strict=True):
                if left:
                    yield LeftOut(by=by, label=label, row=row, predicted=predicted, low=low, high=high)


def _summary(found: list[LeftOut]) -> Iterator[str]:
    for by in dict.fromkeys(left.by for left in found):
        of_column = [left for left in found if left.by == by]
        mean = fmean(abs(left.error) for left in of_column)
        within = sum(left.is_within for left in of_column)
        yield (
            f"fitted without one of {by} at a time, and predicted what was left out: mean absolute error {mean:.1%} of "
            f"{len(of_column)} figures; {within} of them in the 95% interval"
        )
