"""What a chart is: one or several plotly figures, and the table of their numbers.

Each number in a table has its path in the summary (`cells.3.steps_per_s.value`), so that a test, or anybody with the
page's JSON, can look it up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import spread_of
from rlbench.results.records import labels
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.document import Estimate

Figure = dict[str, Any]
"""What `Plotly.newPlot` takes: `data`, a list of traces, and `layout`, without the page's colours.

A trace's `meta` may have `facets`, by which the page's filters show or hide it, or its points; `ink`, if it has the
colour of the page's text; and `end`, the text at the end of its line. A layout's `meta` may have `row` and `room`: the
height in pixels of a row of bars, and of all else; and `over`, the facet along its axis, without several of which there
is nothing to draw.
"""
Facets = Mapping[str, Any]
"""What the page's filters know a thing by: `system`, `scenario`, `workload`, `gpus`, `device`.

Of a trace, a list is one value for each of its points.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text in an entry of a table; with a path, it is a number of the summary."""

    text: str
    path: str | None = None
    value: str = ""
    """The number as JSON writes it."""


Entry = tuple[Piece, ...]
"""The content of one place in a table, from left to right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageTable:
    """A table; the first `num_names` entries of a row name its subject."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    num_names: int = 1
    facets: Sequence[Facets] = ()
    """Of each row, where the page's filters apply to them."""
    column_facets: Sequence[Facets] = ()
    """Of each column."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One figure; it has a title if the chart has several."""

    id: str
    """Id of the element in the page."""
    figure: Figure
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """The figures under one title, and their numbers."""

    title: str
    panels: Sequence[Panel]
    table: PageTable
    notes: Sequence[str] = field(default_factory=list)
    """Lines under the title: where figures come from, what could not be drawn."""
    told: Sequence[tuple[str, str, Facets]] = field(default_factory=list)
    """Sentences below the figure, about each of its rows: name, sentence, facets."""
    told_title: str = "What bounds each"
    facets: Facets = field(default_factory=dict)
    one_of: str = ""
    """Of charts with the same name, the page shows the one on the most GPUs that its filters let through."""

    @property
    def id(self) -> str:
        """The anchor of the figure in the page."""
        return f"figure-{self.panels[0].id}"


def run_facets(run: RunRecord) -> Facets:
    """What the page's filters know a run by."""
    cell = run.cell
    return {
        "system": labels.system(cell),
        "scenario": labels.scenario(cell),
        "workload": cell.workload,
        "gpus": cell.gpus,
        "device": cell.device,
    }


def without_common(table: PageTable) -> PageTable:
    """A table of several rows without the columns in which all rows have the same words: the page says those once."""
    if len(table.rows) < 2:
        return table
    kept = [at for at in range(len(table.columns)) if at == 0 or len({row[at] for row in table.rows}) > 1]
    return replace(
        table,
        columns=[table.columns[at] for at in kept],
        rows=[[row[at] for at in kept] for row in table.rows],
        num_names=sum(at < table.num_names for at in kept),
    )


def words(text: str) -> Entry:
    """An entry of plain text."""
    return (Piece(text),)


def datum(path: str, value: float | None, write: Callable[[float | None], str] = fmt.number) -> Entry:
    """An entry that is a number of the summary.

    Args:
        path: its path in the summary.
        value: the number there.
        write: formats it for people.
    """
    known = value is not None and math.isfinite(value)
    return (Piece(write(value) if known else fmt.NONE, path, repr(value) if known else "null"),)


def estimated(path: str, figure: Estimate | None, write: Callable[[float | None], str] = fmt.number) -> Entry:
    """An entry of an estimate with its interval, if it has one: `1,024 [983, 1,065]`; `path` is the estimate's."""
    if figure is None:
        return datum(path, None)
    value = datum(f"{path}.value", figure.value, write)
    if figure.low is None or figure.high is None:
        return value
    low, high = datum(f"{path}.low", figure.low, write), datum(f"{path}.high", figure.high, write)
    return (*value, Piece(" ["), *low, Piece(", "), *high, Piece("]"))


def times(value: float | None) -> str:
    """A ratio of speeds: `1.52x`."""
    return fmt.NONE if value is None else f"{fmt.factor(value)}x"


def interval_notes(estimates: Iterable[Estimate | None]) -> list[str]:
    """A note on what the intervals of some figures come from, if there are any."""
    said = spread_of(estimates)
    return [f"95 % {said}."] if said else []
