"""What a chart is: one plotly figure or several, and the table of their numbers.

A number in a table knows where it stands in the summary (`cells.3.steps_per_s.value`), so that a test, or anybody with
the page's JSON, can look it up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.figures import format as fmt
from reports.figures.columns import resampled
from results.summary.document import Estimate

Figure = dict[str, Any]
"""What `Plotly.newPlot` takes: `data`, a list of traces, and `layout`, without colours of the page."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text in a table's entry; a number of the summary, if it has a path."""

    text: str
    path: str | None = None
    value: str = ""
    """The number as JSON writes it."""


Entry = tuple[Piece, ...]
"""What stands in one place of a table, from left to right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table; the first `num_names` entries of a row say what the row is about."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    num_names: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One figure, with what it shows if the chart has several."""

    id: str
    """In the page."""
    figure: Figure
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """What is drawn under one title, and its numbers."""

    title: str
    panels: Sequence[Panel]
    table: Table
    notes: Sequence[str] = field(default_factory=list)
    """Lines under the title: where figures come from, what could not be drawn."""
    told: Sequence[tuple[str, str]] = field(default_factory=list)
    """Below the figure, what it says of each of its rows: a name, a sentence."""


def words(text: str) -> Entry:
    """An entry that is no number."""
    return (Piece(text),)


def datum(path: str, value: float | None, write: Callable[[float | None], str] = fmt.number) -> Entry:
    """A number of the summary.

    Args:
        path: where it stands there.
        value: what stands there.
        write: how people read it.
    """
    known = value is not None and math.isfinite(value)
    return (Piece(write(value) if known else fmt.NONE, path, repr(value) if known else "null"),)


def estimated(path: str, figure: Estimate | None, write: Callable[[float | None], str] = fmt.number) -> Entry:
    """A number of the summary with the interval that it has, if any: `1,024 [983, 1,065]`; `path` is the estimate's."""
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
    """What the intervals of some figures were resampled from, if there are any."""
    said = resampled(estimates)
    return [f"95 % {said}."] if said else []
