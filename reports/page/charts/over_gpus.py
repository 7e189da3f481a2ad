"""Draws a quantity of cells against the number of GPUs: as lines, or as bars if there is one number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rlbench.reports.figures.format import number
from rlbench.reports.page.charts.chart import Entry, Facets, Figure, PageTable, datum, estimated, words
from rlbench.reports.page.charts.style import Style, label, plain, row_height
from rlbench.reports.page.charts.works import Placed, ScalingSeries, Work
from rlbench.results.records import labels, units
from rlbench.results.records.units import StepUnit
from rlbench.results.summary.document import CellSummary, Estimate

BAR_HEIGHT = 30
LEAST_HEIGHT = 150
ROOM = 90
"""Height of axes, titles and legend, in pixels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A quantity that cells have."""

    field: str
    """Name of the field in `CellSummary`."""
    title: str
    """Title of the axis and the column, with the unit."""
    write: Callable[[float | None], str] = number
    tick: str = ""
    """d3 format of the ticks of an axis."""
    hover_format: str = ",.4~r"
    from_zero: bool = True
    unit: str = ""
    """After the figure, in hover texts."""

    def of(self, cell: CellSummary) -> Estimate | None:
        """The cell's figure, with its interval if it has one."""
        value: Estimate | float | None = getattr(cell, self.field)
        return value if isinstance(value, Estimate) or value is None else Estimate(value=value)

    def entry(self, placed: Placed) -> Entry:
        """The figure as an entry of a table."""
        value = getattr(placed.cell, self.field)
        if isinstance(value, Estimate):
            return estimated(placed.path(self.field), value, self.write)
        return datum(placed.path(self.field), value, self.write)

    @property
    def axis(self) -> dict[str, Any]:
        """A linear axis of the quantity."""
        return {
            "title": {"text": plain(self.title)},
            "tickformat": self.tick,
            "rangemode": "tozero" if self.from_zero else "normal",
        }

    @property
    def log_axis(self) -> dict[str, Any]:
        """A logarithmic axis, with ticks at 1, 2 and 5."""
        return {**self.axis, "type": "log", "dtick": "D2"}

    def hover(self, estimate: Estimate, along: str) -> str:
        """The hover text of a point; `along` is the plotly variable that holds the figure, `x` or `y`."""
        ends = hover_ends(estimate.low, estimate.high, self.write)
        return f"%{{{along}:{self.hover_format}}}{ends} {self.unit}".rstrip()


def hover_ends(low: float | None, high: float | None, write: Callable[[float | None], str] = number) -> str:
    """The interval of a figure in its hover text: ` [983, 1,065]`; nothing if neither end is known."""
    return "" if low is None and high is None else f" [{write(low)}, {write(high)}]"


def rate_of(unit: StepUnit) -> Quantity:
    """The rate of samples."""
    return Quantity(field="steps_per_s", title=units.capitalised(units.rate(unit)), tick="~s", unit=units.rate(unit))


def rates_of(unit: StepUnit) -> list[Quantity]:
    """The rate of samples, and beside that of agent steps the one of env steps."""
    beside = [Quantity(field="env_steps_per_s", title=units.ENV_RATE.capitalize(), tick=",")]
    return [rate_of(unit), *(beside if unit == "agent steps" else [])]


def rate_hover(rate: Estimate, unit: StepUnit, along: str = "y") -> str:
    """The hover text of a rate, with its unit."""
    return rate_of(unit).hover(rate, along)


def table(work: Work, caption: str, quantities: Sequence[Quantity]) -> PageTable:
    """A table of some quantities, with a row for each cell."""
    return PageTable(
        caption=caption,
        columns=["system", work.gpus_title, *(quantity.title for quantity in quantities)],
        rows=[
            [*names(series, placed), *(quantity.entry(placed) for quantity in quantities)]
            for series in work.series
            for placed in series.cells
        ],
        num_names=2,
        facets=[placed.facets for series in work.series for placed in series.cells],
    )


def names(series: ScalingSeries, placed: Placed) -> list[Entry]:
    """What a row of a table is about: the series, and the number of GPUs."""
    return [words(series.label), words(f"{placed.cell.gpus:,}")]


def gpus_axis(work: Work, gpus: Sequence[int]) -> dict[str, Any]:
    """A logarithmic axis of the number of GPUs."""
    return {
        "type": "log",
        "title": {"text": work.gpus_title},
        "tickmode": "array",
        "tickvals": list(gpus),
        "ticktext": [f"{each:,}" for each in gpus],
    }


def figure(work: Work, look: Mapping[str, Style], quantity: Quantity) -> Figure:
    """Lines against the number of GPUs; if there is only one number, horizontal bars, one system below the other."""
    if len(work.gpus) > 1:
        data = [trace for series in work.series for trace in _line(series, look[series.system], quantity)]
        axes = {"xaxis": gpus_axis(work, work.gpus), "yaxis": quantity.axis}
        return {"data": data, "layout": {**axes, "meta": {"over": "gpus"}}}
    data = [trace for series in work.series for trace in _bar(series, look[series.system], quantity)]
    return {"data": data, "layout": bar_layout([series.label for series in work.series], quantity.axis)}


def bar_layout(names: Sequence[str], axis: dict[str, Any]) -> dict[str, Any]:
    """The layout of horizontal bars, the first name at the top."""
    order = [label(name) for name in names]
    return {
        "xaxis": axis,
        "yaxis": {
            "type": "category",
            "range": [len(order) - 0.5, -0.5],
            "categoryorder": "array",
            "categoryarray": order,
        },
        "height": max(LEAST_HEIGHT, ROOM + row_height(order, BAR_HEIGHT) * len(order)),
        "meta": {"row": row_height(order, BAR_HEIGHT), "room": ROOM},
        "showlegend": False,
    }


def _known(series: ScalingSeries, quantity: Quantity) -> list[tuple[int, Estimate]]:
    return [(each.cell.gpus, value) for each in series.cells if (value := quantity.of(each.cell)) is not None]


def _line(series: ScalingSeries, style: Style, quantity: Quantity) -> list[dict[str, Any]]:
    known = _known(series, quantity)
    if not known:
        return []
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(series.label),
        "legendgroup": plain(series.label),
        "x": [gpus for gpus, _ in known],
        "y": [each.value for _, each in known],
        "line": style.line(series.kind),
        "marker": style.marker(series.kind),
        "hovertemplate": [
            f"%{{fullData.name}}<br>on {labels.ranks(gpus, series.device)}: {quantity.hover(each, 'y')}<extra></extra>"
            for gpus, each in known
        ],
        "meta": {"facets": {**series.facets, "gpus": [gpus for gpus, _ in known]}, "end": plain(series.label)},
    }
    facets = {**series.facets, "gpus": [gpus for gpus, _ in known]}
    return [trace, *intervals(known, style, series.label, facets=facets)]


def _bar(series: ScalingSeries, style: Style, quantity: Quantity) -> list[dict[str, Any]]:
    known = _known(series, quantity)
    if not known:
        return []
    trace = {
        "type": "bar",
        "orientation": "h",
        "name": label(series.label),
        "x": [each.value for _, each in known],
        "y": [label(series.label)],
        "marker": style.bar(series.kind),
        "hovertemplate": [f"%{{fullData.name}}<br>{quantity.hover(each, 'x')}<extra></extra>" for _, each in known],
        "meta": {"facets": series.facets},
    }
    ends = intervals(
        [(label(series.label), each) for _, each in known], style, series.label, horizontal=True, facets=series.facets
    )
    return [trace, *map(upon_bar, ends)]


def upon_bar(interval: dict[str, Any]) -> dict[str, Any]:
    """An interval on a bar: the page draws it in the colour of its text."""
    return {**interval, "opacity": 1, "meta": {**interval["meta"], "ink": True}}


def intervals(
    known: Sequence[tuple[float | str, Estimate]],
    style: Style,
    name: str,
    *,
    horizontal: bool = False,
    facets: Facets = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """A trace that draws the intervals of estimates at their places on the other axis; no trace without intervals.

    `facets`: a list is one value for each estimate.
    """
    places: list[float | str | None] = []
    ends: list[float | None] = []
    drawn: list[int] = []
    for at, (place, estimate) in enumerate(known):
        if estimate.low is not None and estimate.high is not None:
            places += [place, place, None]
            ends += [estimate.low, estimate.high, None]
            drawn += [at, at, at]
    if not places:
        return []
    line = {"color": style.colour, "width": 1.5}
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "legendgroup": plain(name),
            "x": ends if horizontal else places,
            "y": places if horizontal else ends,
            "line": line,
            "marker": {"symbol": "line-ns" if horizontal else "line-ew", "size": 9, "line": line},
            "opacity": 0.7,
            "hoverinfo": "skip",
            "showlegend": False,
            "meta": {
                "facets": {
                    facet: [value[at] for at in drawn] if isinstance(value, list) else value
                    for facet, value in facets.items()
                }
            },
        }
    ]
