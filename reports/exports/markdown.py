"""A summary as Markdown for a pull request: the answers, a row per cell, and the findings.

Names and texts come from runs, so everything that Markdown or HTML would interpret is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rlbench.reports.figures import columns as col
from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import RowT, TableColumn
from rlbench.results.records import units
from rlbench.results.summary.document import CellSummary, Estimate, Summary

SPECIAL = re.compile(r"[\\`*\[\]<>|~#$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|@(?=\w)")
"""Characters that would be markup, a character reference or a mention; an underscore inside a word is not."""
SPACE = re.compile(r"\s+")
AS_HTML = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "#": "&#35;", "$": "&#36;"}


def to_markdown(summary: Summary) -> str:
    """The Markdown document of a summary."""
    return "\n".join(_lines(summary)) + "\n"


def escape(text: str) -> str:
    """Escapes a text so that Markdown shows it unchanged, on one line; also inside a table."""
    return SPECIAL.sub(lambda found: AS_HTML.get(found[0], f"\\{found[0]}"), SPACE.sub(" ", text))


def code(text: str) -> str:
    """Formats a text as code, even if it holds backticks; for use outside tables."""
    text = SPACE.sub(" ", text)
    longest = max(map(len, re.findall("`+", text)), default=0)
    if not longest:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


def _lines(summary: Summary) -> Iterator[str]:
    systems = {cell.system for cell in summary.cells}
    for answer in summary.answers:
        yield f"- {_answer(answer, systems)}"
    if summary.answers:
        yield ""
    if summary.cells:
        yield from _table(summary)
    else:
        yield "No runs."
    for line in col.not_comparable(summary):
        yield f"- {escape(line)}"
    for _, said in col.findings(summary.findings, len(summary.runs)):
        yield f"- {escape(said)}"


def _answer(sentence: str, systems: set[str]) -> str:
    """Escapes a sentence, but formats the names of systems in backticks as code."""
    names = "|".join(re.escape(name) for name in sorted(systems, key=len, reverse=True))
    parts = re.split(f"`({names})`", sentence) if names else [sentence]
    return "".join(code(part) if place % 2 else escape(part) for place, part in enumerate(parts))


def _table(summary: Summary) -> Iterator[str]:
    shared, names = col.names(summary)
    if shared:
        yield escape(shared)
        yield ""
    yield from table_lines([*names, *_figures(summary.cells)], summary.cells)
    yield ""
    for note in _notes(summary.cells):
        yield f"{escape(note)}  "
    yield ""


def table_lines(columns: Sequence[TableColumn[RowT]], rows: Iterable[RowT]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield _row([escape(column.title) for column in columns])
    yield _row(["---:" if column.is_number else "---" for column in columns])
    for row in rows:
        yield _row([escape(column.value(row)) for column in columns])


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _figures(cells: Sequence[CellSummary]) -> Iterator[TableColumn[CellSummary]]:
    yield TableColumn(title=units.rate(col.unit_of(cells)), value=_rate)
    yield from col.env_rate(cells)
    yield TableColumn(
        title="scaling", value=lambda cell: _with_interval(fmt.factor(fmt.value(cell.scaling)), cell.scaling)
    )
    yield from col.rates(cells)[-2:]
    yield TableColumn(title="bound by", value=_bound_by, is_number=False)
    yield from col.shares_and_lag(cells)
    learning = [cell.learning for cell in cells if cell.learning is not None]
    if learning:
        yield TableColumn(title=f"final {learning[0].metric}", value=_final)


def _rate(cell: CellSummary) -> str:
    ends = fmt.ends(cell.steps_per_s)
    return fmt.steps_per_s(cell) + ("" if ends is None else f" ({fmt.interval(ends)})")


def _with_interval(written: str, estimate: Estimate | None) -> str:
    ends = fmt.ends(estimate)
    return written if ends is None else f"{written} ({fmt.interval(ends, fmt.factor)})"


def _bound_by(cell: CellSummary) -> str:
    if cell.bottleneck is None:
        return fmt.NONE
    return f"{cell.bottleneck.stage} {fmt.percent(cell.bottleneck.share)}"


def _final(cell: CellSummary) -> str:
    if cell.learning is None:
        return fmt.NONE
    return _with_interval(fmt.factor(cell.learning.final.value), cell.learning.final)


def _notes(cells: Sequence[CellSummary]) -> Iterator[str]:
    if (unit := col.unit_of(cells)) == "agent steps":
        yield units.defined(unit)
    if said := col.spread_of(each for cell in cells for each in (cell.steps_per_s, cell.scaling)):
        yield f"In parentheses: 95 % {said}."
    yield from col.kind_notes(cells)
