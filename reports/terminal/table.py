"""The table of cells in a terminal: a row per cell, shared properties above it, sources and warnings below.

The layout is ASCII and fits 80 columns: if there is little room, intervals and time shares get separate tables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlbench.reports.figures import columns as col
from rlbench.reports.figures.columns import RowT, TableColumn
from rlbench.results.reading.untrusted import visible
from rlbench.results.records import units
from rlbench.results.summary.document import CellSummary, Summary

WIDE = 130
"""Width in columns from which all figures fit into one table."""
PIPED_WIDTH = 160


def make_console(file: TextIO | None = None) -> Console:
    """A console for a report: as wide as the terminal or as COLUMNS says; 160 columns if neither is there."""
    file = file or sys.stdout
    knows_width = file.isatty() or "COLUMNS" in os.environ
    return Console(file=file, highlight=False, width=None if knows_width else PIPED_WIDTH)


def make_table() -> Table:
    """An empty table, in ASCII and without edges."""
    return Table(box=box.ASCII2, show_edge=False, pad_edge=False)


def print_table(summary: Summary, console: Console | None = None) -> None:
    """Prints the cells of a summary, then the problems of its runs, then notes that explain the figures."""
    console = console or make_console()
    findings = col.findings(summary.findings, len(summary.runs))
    unreadable = [said for severity, said in findings if severity == "unreadable"]
    if not summary.cells:
        print_lines(console, ["no runs", *unreadable])
        return
    cells, (shared, names) = summary.cells, col.names(summary)
    print_lines(console, [shared])
    print_blocks(console, names, [col.rates(cells), col.intervals(cells), col.shares_and_lag(cells)], cells)
    problems = [said for severity, said in findings if severity != "unreadable"]
    print_lines(console, [*problems, *col.not_comparable(summary), *_notes(cells), *unreadable])


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Prints lines; makes control characters visible, which names of folders may hold."""
    for line in lines:
        console.print(Text(visible(line)))  # not as markup: a reason may hold brackets


def print_blocks(
    console: Console,
    names: Sequence[TableColumn[RowT]],
    blocks: Sequence[Sequence[TableColumn[RowT]]],
    rows: Sequence[RowT],
) -> None:
    """Prints blocks of columns next to the names: all in one table, or one table per block if there is little room."""
    if console.width >= WIDE:
        blocks = [[column for block in blocks for column in block]]
    for columns in filter(None, blocks):
        shown = [*names, *columns]
        table = make_table()
        for column in shown:
            table.add_column(column.title, justify="right" if column.is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(column.value(row)) for column in shown))
        console.print(table)
        console.print()


def _notes(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Lines that explain the columns and name the sources of figures."""
    finished = [cell for cell in cells if "finished" in cell.statuses]
    yield units.defined(col.unit_of(cells))
    if said := col.spread_of(each for cell in cells for each in (cell.steps_per_s, cell.scaling)):
        yield f"95 %: {said}"
    for base in sorted({cell.scaling_base_gpus for cell in cells if cell.scaling_base_gpus}):
        of = "1 GPU" if base == 1 else f"{base} GPUs"
        yield f"scaling: relative to the same on {of}; efficiency: that / {'GPUs' if base == 1 else f'(GPUs / {base})'}"
    if sources := dict.fromkeys(cell.utilisation_source for cell in finished):
        yield f"utilisation: {'; '.join(sources)}"
    if any(cell.time_shares for cell in cells):
        yield "where the time went: shares of the ranks' time, the largest first"
    lags = [cell.lag_max for cell in cells if cell.lag_max is not None]
    if lags:
        yield "lag: policy versions, mean (max)" if any(lags) else "lag: 0 policy versions in all runs"
    yield from col.kind_notes(cells)
