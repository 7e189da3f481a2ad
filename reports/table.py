"""The table of runs in a terminal: a row per run, what all runs share above it, sources and warnings below.

The layout is ASCII and fits 80 columns: where there is little room, intervals and time shares get tables of their own.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports import format as fmt
from results.check import largest_error
from results.schema import RunRecord

WIDE = 130
"""Columns from which the time shares fit beside the figures."""
PIPED_WIDTH = 160
NUM_SHARES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of figures: its title, what a run has there, and whether it is a name or a number."""

    title: str
    value: Callable[[RunRecord], str]
    is_number: bool = True


def make_console(file: TextIO | None = None) -> Console:
    """A console for a report: as wide as the terminal; without one 160 columns, unless COLUMNS says otherwise."""
    file = file or sys.stdout
    knows_width = file.isatty() or "COLUMNS" in os.environ
    return Console(file=file, highlight=False, width=None if knows_width else PIPED_WIDTH)


def print_table(records: Sequence[RunRecord], console: Console | None = None) -> None:
    """Prints the runs."""
    console = console or make_console()
    if not records:
        console.print("no runs")
        return
    rows = _in_order(records)
    _print_lines(console, [_shared(rows)])
    names = _names(rows)
    if console.width >= WIDE:
        blocks = [[*_rates(), *_intervals(rows), *_shares_and_lag(rows)]]
    else:
        blocks = [_rates(), _intervals(rows), _shares_and_lag(rows)]
    for columns in filter(None, blocks):
        console.print(_table([*names, *columns], rows))
        console.print()
    _print_lines(console, [*_problems(rows), *_notes(rows)])


def _print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(Text(line))  # no markup: a reason may hold brackets


def _in_order(records: Sequence[RunRecord]) -> list[RunRecord]:
    """By work, then system in the order of first appearance, then GPUs and seed, however the runs were interleaved."""
    systems = {fmt.system(record): place for place, record in reversed(list(enumerate(records)))}

    def place(run: RunRecord) -> tuple[str, str, str, int, int, int]:
        return (run.sweep, fmt.scenario(run), run.cell.workload, systems[fmt.system(run)], run.cell.gpus, run.cell.seed)

    return sorted(records, key=place)


_SHAREABLE: tuple[Column, ...] = (
    Column(title="scenario", value=fmt.scenario, is_number=False),
    Column(title="workload", value=lambda run: run.cell.workload, is_number=False),
    Column(title="seed", value=lambda run: str(run.cell.seed)),
    Column(title="device", value=lambda run: run.cell.device, is_number=False),
    Column(title="protocol", value=lambda run: run.cell.protocol, is_number=False),
    Column(title="sweep", value=lambda run: run.sweep, is_number=False),
)


def _is_shared(column: Column, rows: Sequence[RunRecord]) -> bool:
    return len({column.value(run) for run in rows}) == 1


def _shared(rows: Sequence[RunRecord]) -> str:
    """What all runs have in common, in one line, so that it needs no column."""
    return ", ".join(f"{c.title} {c.value(rows[0])}" for c in _SHAREABLE if _is_shared(c, rows))


def _names(rows: Sequence[RunRecord]) -> list[Column]:
    """Columns that say which run it is."""
    return [
        Column(title="system", value=fmt.system, is_number=False),
        *(column for column in _SHAREABLE if not _is_shared(column, rows)),
        Column(title="GPUs", value=fmt.gpus),
    ]


def _rates() -> list[Column]:
    return [
        Column(title="steps/s", value=fmt.steps_per_s),
        Column(title="scaling", value=fmt.scaling),
        Column(title="efficiency", value=lambda run: fmt.percent(run.figures.efficiency)),
        Column(title="utilisation", value=lambda run: fmt.percent(run.figures.utilisation.value)),
    ]


def _intervals(rows: Sequence[RunRecord]) -> list[Column]:
    columns = []
    if any(run.figures.steps_per_s_interval for run in rows):
        columns.append(Column(title="steps/s, 95 %", value=lambda run: fmt.interval(run.figures.steps_per_s_interval)))
    if any(run.figures.scaling_factor_interval for run in rows):
        columns.append(Column(title="scaling, 95 %", value=fmt.scaling_interval))
    return columns


def _shares_and_lag(rows: Sequence[RunRecord]) -> list[Column]:
    columns = []
    if any(run.figures.time_shares for run in rows):
        shares = Column(title="where the time went", value=lambda run: fmt.shares(run, NUM_SHARES), is_number=False)
        columns.append(shares)
    if any(run.figures.lag and run.figures.lag.max for run in rows):
        columns.append(Column(title="lag", value=fmt.lag))
    return columns


def _table(columns: Sequence[Column], rows: Sequence[RunRecord]) -> Table:
    table = Table(box=box.ASCII2, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.is_number else "left", overflow="fold")
    for run in rows:
        table.add_row(*(Text(column.value(run)) for column in columns))
    return table


def _label(run: RunRecord, rows: Sequence[RunRecord]) -> str:
    return ", ".join(f"{column.title} {column.value(run)}" for column in _names(rows)).removeprefix("system ")


def _problems(rows: Sequence[RunRecord]) -> Iterator[str]:
    """Why runs did not finish, and what may have spoilt the others."""
    for run in rows:
        if run.reason:
            yield f"{run.status}: {_label(run, rows)}: {run.reason}"
    for run in rows:
        window = run.figures.window
        if window and not window.steady:
            yield f"warning: {_label(run, rows)}: not steady: {window.reason}"
    warnings = Counter(warning for run in rows for warning in dict.fromkeys(run.warnings))
    for warning, count in warnings.items():
        of_runs = f" ({count} of {len(rows)} runs)" if len(rows) > 1 else ""
        yield f"warning: {warning}{of_runs}"


def _notes(rows: Sequence[RunRecord]) -> Iterator[str]:
    """What the columns mean and where the figures come from."""
    yield "steps/s: fresh env steps learned per second, over all ranks"
    if _intervals(rows):
        yield "95 %: interval by resampling the iterations of the window; it says nothing of other runs or seeds"
    for base in sorted({run.figures.scaling_base_gpus for run in rows if run.figures.scaling_base_gpus}):
        of = "1 GPU" if base == 1 else f"{base} GPUs"
        yield f"scaling: relative to the same on {of}; efficiency: that / {'GPUs' if base == 1 else f'(GPUs / {base})'}"
    sources = dict.fromkeys(run.figures.utilisation.source for run in rows if run.status == "finished")
    if sources:
        yield f"utilisation: {'; '.join(sources)}"
    if any(run.figures.time_shares for run in rows):
        yield "where the time went: shares of the ranks' time, the largest first"
    lags = [run.figures.lag for run in rows if run.figures.lag]
    if lags:
        yield (
            "lag: policy versions, mean (max)" if any(lag.max for lag in lags) else "lag: 0 policy versions in all runs"
        )
    if any(run.figures.emulated for run in rows):
        yield "emulated: GPUs are emulated from a profile; the figures speak of that profile, not of this machine"
    if predicted := {run.cell.system for run in rows if run.figures.predicted}:
        error = largest_error(predicted)
        held = (
            "these systems were never held against runs"
            if error is None
            else (f"held against runs on 1 to 8 emulated GPUs, these systems were off by at most {100 * error:.1f}%")
        )
        yield f"predicted: a model of the profile made these runs up, nothing was run; {held}"
