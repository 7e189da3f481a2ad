"""A summary as HTML for a notebook: the answers, what spoils figures, and a table of the cells.

Names and reasons come from runs, so every text is escaped; there is no script, and no style but that of the elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from rlbench.reports.figures import columns as col
from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import TableColumn
from rlbench.results.records import units
from rlbench.results.summary.document import CellSummary, Summary

MOST_CELLS, MOST_FINDINGS = 60, 12
"""Rows and problems that are shown; the frames have all."""
NAME = re.compile("`([^`]+)`")
"""A system in an answer."""
LEFT, RIGHT = ' style="text-align:left"', ' style="text-align:right"'
SMALL = ' style="font-size:85%;margin:0.2em 0"'


def page_of(summary: Summary) -> str:
    """The HTML of a summary."""
    return "".join(_parts(summary))


def _parts(summary: Summary) -> Iterator[str]:
    yield '<div class="rlbench">'
    for answer in summary.answers:
        named = NAME.sub(r"<code>\1</code>", escape(answer))
        yield f"<p>{named}</p>"
    said = [text for _, text in col.findings(summary.findings, len(summary.runs))]
    yield from _list(said, MOST_FINDINGS, "findings")
    if not summary.cells:
        yield "<p>No run can be read.</p></div>"
        return
    cells, (shared, names) = summary.cells, col.names(summary)
    if shared:
        yield f"<p{SMALL}>{escape(shared)}</p>"
    yield from _table([*names, *col.rates(cells), *_intervals(cells), *col.shares_and_lag(cells)], cells)
    notes = [units.defined(col.unit_of(cells))]
    if spread := col.spread_of(each for cell in cells for each in (cell.steps_per_s, cell.scaling)):
        notes.append(f"95 %: {spread}")
    for note in [*notes, *col.not_comparable(summary), *col.kind_notes(cells)]:
        yield f"<p{SMALL}>{escape(note)}</p>"
    yield "</div>"


def _intervals(cells: Sequence[CellSummary]) -> list[TableColumn[CellSummary]]:
    """The columns of intervals, if some cell has them."""
    found: list[TableColumn[CellSummary]] = []
    if any(fmt.ends(cell.steps_per_s) for cell in cells):
        title = f"{units.rate(col.unit_of(cells))}, 95 %"
        found.append(TableColumn(title=title, value=lambda cell: fmt.interval_of(cell.steps_per_s)))
    if any(fmt.ends(cell.scaling) for cell in cells):
        found.append(TableColumn(title="scaling, 95 %", value=lambda cell: fmt.interval_of(cell.scaling, fmt.factor)))
    return found


def _list(lines: Sequence[str], most: int, where: str) -> Iterator[str]:
    if lines:
        yield "<ul>"
        yield from (f"<li>{escape(line)}</li>" for line in lines[:most])
        yield _more(len(lines) - most, "li", where)
        yield "</ul>"


def _table(columns: Sequence[TableColumn[CellSummary]], cells: Sequence[CellSummary]) -> Iterator[str]:
    yield "<table><thead>"
    yield _row("th", columns, (column.title for column in columns))
    yield "</thead><tbody>"
    for cell in cells[:MOST_CELLS]:
        yield _row("td", columns, (column.value(cell) for column in columns))
    yield "</tbody></table>"
    yield _more(len(cells) - MOST_CELLS, "p", "cells")


def _row(tag: str, columns: Sequence[TableColumn[CellSummary]], texts: Iterable[str]) -> str:
    each = zip(columns, texts, strict=True)
    return f"<tr>{''.join(f'<{tag}{RIGHT if c.is_number else LEFT}>{escape(text)}</{tag}>' for c, text in each)}</tr>"


def _more(left: int, tag: str, where: str) -> str:
    """Says how many are not shown, if any."""
    return f"<{tag}>… and {left:,} more: <code>.{where}</code> has all</{tag}>" if left > 0 else ""
