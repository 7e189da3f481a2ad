"""The table of cells in a terminal: a row per cell, shared properties above it, caveats below.

It is ASCII. `layout` chooses the columns that fit, `notes` has the lines around them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlbench.reports.figures.columns import RowT, TableColumn
from rlbench.reports.terminal.layout import fitting, group, in_order, widths
from rlbench.reports.terminal.notes import caveats, explanations, heading, in_a_row, meaning_of_marks, packed
from rlbench.results.reading.untrusted import visible
from rlbench.results.summary.document import CellSummary, Summary
from rlbench.results.summary.standings import Standing, standings

WIDE = 130
"""Width in columns from which all blocks of columns fit into one table."""
HINT = "--explain says what the columns mean"
PIPED_WIDTH = 160


def make_console(file: TextIO | None = None) -> Console:
    """A console for a report: as wide as the terminal or as COLUMNS says; 160 columns if neither is there."""
    file = file or sys.stdout
    knows_width = file.isatty() or "COLUMNS" in os.environ
    return Console(file=file, highlight=False, width=None if knows_width else PIPED_WIDTH)


def make_table() -> Table:
    """An empty table, in ASCII and without edges."""
    return Table(box=box.ASCII2, show_edge=False, pad_edge=False)


def print_table(summary: Summary, console: Console | None = None, *, explain: bool = False) -> None:
    """Prints the cells of a summary, then what spoils their figures, and what the columns mean if that is asked for."""
    console = console or make_console()
    if not summary.cells:
        print_lines(console, ["no runs", *caveats(summary, every=True)])
        return
    cells = in_order(summary.cells)
    places = standings(cells, summary.comparisons)
    lines, names = heading(summary, console.width)
    print_lines(console, [*lines, ""])
    layout = fitting(names, cells, places, console.width)
    for number, (above, rows) in enumerate(layout.blocks(cells)):
        print_lines(console, [*([""] if number else []), *packed(above, console.width)])
        _print_cells(console, layout.columns, rows, cells, places)
    below = [meaning_of_marks(set(places.values()))]
    below.append(f"no room here for {in_a_row(layout.left_out)}" if layout.left_out else "")
    print_lines(console, ["", *filter(None, below)])
    print_caveats(console, caveats(summary, every=explain))
    print_lines(console, explanations(cells) if explain else [HINT])


def _print_cells(
    console: Console,
    columns: Sequence[TableColumn[CellSummary]],
    cells: Sequence[CellSummary],
    every: Sequence[CellSummary],
    places: Mapping[str, Standing],
) -> None:
    """Prints rows; a line stands between groups that are compared, and the best of each is bold.

    Columns are as wide as `every` row of all blocks needs, so that they stand below each other.
    """
    table = make_table()
    for column, width in zip(columns, widths(columns, every), strict=True):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        is_name = column.title == "system"
        table.add_column(column.title, justify=justify, overflow="fold", no_wrap=not is_name, min_width=width)
    are_groups = len({group(cell) for cell in cells}) < len(cells)
    for place, cell in enumerate(cells):
        if are_groups and place and group(cells[place - 1]) != group(cell):
            table.add_section()
        style = "bold" if places.get(cell.id) in {"fastest", "tied"} else ""
        table.add_row(*(Text(visible(column.value(cell))) for column in columns), style=style)
    console.print(table)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Prints lines; makes control characters visible, which names of folders may hold."""
    for line in lines:
        console.print(Text(visible(line)))  # not as markup: a reason may hold brackets


def print_caveats(console: Console, lines: Sequence[str]) -> None:
    """Prints what spoils figures, under a title of its own; nothing where nothing does."""
    if lines:
        print_lines(console, ["Caveats:", *(f"- {line}" for line in lines)])


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
