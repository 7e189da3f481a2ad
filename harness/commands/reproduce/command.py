"""What `rlbench reproduce` does: predicts a table, looks for measured runs, prints both beside what was published."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from rlbench.harness.commands.reproduce.held_out import print_held_out
from rlbench.harness.commands.reproduce.measuring import MOST_EMULATED, commands, measured_rates
from rlbench.harness.commands.reproduce.papers import TABLES
from rlbench.harness.commands.reproduce.predicting import predict_rates
from rlbench.harness.commands.reproduce.table import errors_by_fit, fill, judge
from rlbench.harness.live.footer import progress_console
from rlbench.reports.figures.format import number
from rlbench.reports.terminal.table import make_console, make_table
from rlbench.results import published
from rlbench.results.reading.names import known_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from rlbench.harness.commands.reproduce.table import ClaimOutcome, Filled, PaperTable
    from rlbench.harness.predicting.points import Rates

ALL = "all"
NONE = "-"
NUMBERS = ("GPUs", "envs", "p")
"""Columns of numbers before the figures."""


def reproduce(name: str, out: Path, *, held_out: bool = False) -> int:
    """Prints a table, or `all`; returns 0 when all checks hold, else 1. Raises ValueError for an unknown name.

    With `held_out`, fits profiles again without some of the figures, and prints what these predict instead.
    """
    if name not in {ALL, *TABLES}:
        raise ValueError(f"reproduce {name}: unknown; {known_names(name, TABLES, also=ALL)}")
    console = make_console()
    tables = [make() for known, make in TABLES.items() if name in {ALL, known}]
    if held_out:
        for table in tables:
            if table.fits or name != ALL:
                print_held_out(table, console)
        return 0
    held = [print_table(table, out, console) for table in tables]
    return 0 if all(held) else 1


def print_table(table: PaperTable, out: Path, console: Console) -> bool:
    """Predicts and prints one table; returns whether its checks hold."""
    measured = measured_rates(table, out)
    predicted = predict_rates(table, progress_console())
    rows = fill(table, predicted, measured)
    outcomes = judge(table, rows)
    for line in _heading(table):
        console.print(Text(line))
    console.print(_grid(table, list(rows.values())))
    console.print()
    for line in [*_about_measured(table, measured, out), *_verdicts(table, outcomes), *_errors(rows.values()), ""]:
        console.print(Text(line), soft_wrap=True)
    return all(outcome.holds is not False for outcome in outcomes)


def _heading(table: PaperTable) -> Iterator[str]:
    """Says what the columns hold and where it comes from."""
    yield f"{table.name}: {table.unit}"
    for name in table.published:
        yield f"published: {published.source(name)}"
    seconds = table.length.seconds
    length = f"protocol {table.length.protocol}" + (f", {seconds:g} s of the profile each" if seconds else "")
    yield f"predicted: by a model of the systems, nothing was run; means of {_seeds(table)}; {length}"
    yield "measured: on emulated GPUs; mean of the latest run of each seed. Errors are relative to what is published"
    yield "fitted: the profile was fitted to this figure; held out: it had no part in that"
    if table.note:
        yield table.note


def _seeds(table: PaperTable) -> str:
    """How many runs are predicted for each point."""
    counts = {gpus: table.length.num_seeds(gpus) for gpus in sorted({point.gpus for point in table.points})}
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values()))} seeds"
    return "seeds: " + ", ".join(f"{count} on {gpus} GPU{'s' * (gpus > 1)}" for gpus, count in counts.items())


def _grid(table: PaperTable, rows: Sequence[Filled]) -> Grid:
    grid = make_table()
    for title in table.titles:
        grid.add_column(title, justify="right" if title in NUMBERS else "left", overflow="fold")
    for title in ("published", "predicted", "error", "measured", "error"):
        grid.add_column(title, justify="right", overflow="fold")
    grid.add_column("profile", overflow="fold")
    for filled in rows:
        row = filled.row
        figures = (
            _figure(row.published),
            "no model" if row.point is None else _figure(filled.predicted),
            _error(filled.predicted_error),
            _figure(filled.measured),
            _error(filled.measured_error),
        )
        grid.add_row(*map(Text, (*row.labels, *figures, row.fit)))
    return grid


def _figure(value: float | None) -> str:
    return NONE if value is None else number(value)


def _error(fraction: float | None) -> str:
    return NONE if fraction is None else f"{fraction:+.1%}"


def _about_measured(table: PaperTable, measured: Rates, out: Path) -> Iterator[str]:
    """Says what would fill the gaps in the column of measured figures."""
    within_reach = [point for point in table.points if point.system is not None and point.gpus <= MOST_EMULATED]
    missing = [point for point in within_reach if point not in measured]
    if missing:
        made_by = " && ".join(commands(table, missing, out))
        yield f"measured: {out} has no run for {len(missing)} of {len(within_reach)} rates; to make them: {made_by}"
    if any(point.gpus > MOST_EMULATED and point not in measured for point in table.points):
        yield f"measured: more than {MOST_EMULATED} GPUs need a machine with many cores; figures of them are predicted"


def _errors(rows: Iterable[Filled]) -> Iterator[str]:
    """The predictions' mean errors, apart by whether the profile was fitted to the figures."""
    for fit, errors in errors_by_fit(rows).items():
        yield f"{fit}: mean absolute error of the predictions {fmean(errors):.1%}, {len(errors)} figures"


def _verdicts(table: PaperTable, outcomes: Sequence[ClaimOutcome]) -> Iterator[str]:
    """A line for each check of the predicted figures, and how many hold."""
    words = {True: "ok", False: "missed", None: NONE}
    for outcome in outcomes:
        yield f"{words[outcome.holds]:6}  {outcome.text}: {outcome.value}; bound: {outcome.bound}"
        if outcome.remark:
            yield f"{'':6}  {outcome.remark}"
    judged = [outcome for outcome in outcomes if outcome.holds is not None]
    yield f"{table.name}: {sum(bool(outcome.holds) for outcome in judged)} of {len(judged)} checks hold"
