"""The first screen of a report: for each work its tiles, a bar for each system, and steps/s over GPUs.

Where there is one number of GPUs, learning curves stand in the place of the latter, if anybody learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlbench.reports.figures.format import number
from rlbench.reports.page.charts import learning
from rlbench.reports.page.charts.chart import Chart, Facets, Figure, PageTable, interval_notes
from rlbench.reports.page.charts.over_gpus import bar_layout, figure, intervals, rate_of, rates_of, table, upon_bar
from rlbench.reports.page.charts.scaling import falls
from rlbench.reports.page.charts.style import Style, label, styles
from rlbench.reports.page.charts.works import Placed, ScalingSeries, Work, with_kinds, works
from rlbench.reports.page.headline import Verdict, verdicts
from rlbench.results.records import units
from rlbench.results.summary.document import Summary

APART = 0.35
"""Opacity of the bar of a system that may not be compared with the fastest."""
HEIGHT = 330


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstScreen:
    """What the page shows first of a work."""

    id: str
    name: str
    facets: Facets
    verdicts: Sequence[Verdict]
    """On each number of GPUs, ascending; the page shows the last that its filters let through."""
    bars: Mapping[str, Figure]
    """By id: for each number of GPUs, in that order."""
    bars_title: Sequence[str]
    beside: tuple[str, str, Figure] | None
    """Rates over GPUs, or learning curves: id, title and figure."""
    table: PageTable
    falls: Mapping[str, Sequence[tuple[str, Facets]]]
    """From where the efficiency of which systems is low, in words."""
    notes: Sequence[str]


def first_screens(summary: Summary) -> list[FirstScreen]:
    """One for each work in which a run finished."""
    look, several_kinds = styles(summary), len({cell.kind for cell in summary.cells}) > 1
    curves = {tuple(chart.facets.items()): chart for chart in learning.curves(summary)}
    made = []
    for place, work in enumerate(works(summary)):
        if not work.gpus:
            continue
        said = verdicts(work, summary)
        beside = _over_gpus(work, look, place) if len(work.gpus) > 1 else _curves(curves, work)
        least = HEIGHT if beside else 0
        made.append(
            FirstScreen(
                id=f"first-{place}",
                name=work.name,
                facets=work.facets,
                verdicts=said,
                bars={
                    f"bars-{place}-{each.gpus}": _bars(work, look, each, least, several_kinds=several_kinds)
                    for each in said
                },
                bars_title=[
                    with_kinds(f"{rate_of(work.unit).title} on {work.count(each.gpus)}", work.kinds) for each in said
                ],
                beside=beside,
                table=table(work, work.titled(rate_of(work.unit).title), rates_of(work.unit)),
                falls=falls(work),
                notes=[
                    f"{units.capitalised(units.defined(work.unit))}.",
                    *interval_notes(placed.cell.steps_per_s for placed in work.cells),
                    *work.alike(),
                    *work.not_drawn(),
                ],
            )
        )
    return made


def _over_gpus(work: Work, look: Mapping[str, Style], place: int) -> tuple[str, str, Figure]:
    rate = rate_of(work.unit)
    drawn = figure(work, look, rate)
    drawn["layout"] |= {"yaxis": rate.log_axis, "height": HEIGHT}
    return f"throughput-{place}", with_kinds(f"{rate.title} over GPUs", work.kinds), drawn


def _curves(charts: Mapping[tuple[tuple[str, str], ...], Chart], work: Work) -> tuple[str, str, Figure] | None:
    """The learning curves of a work, if it has any."""
    chart = charts.get(tuple(work.facets.items()))
    if chart is None:
        return None
    panel = chart.panels[0]
    drawn = {"data": panel.figure["data"], "layout": {**panel.figure["layout"], "height": HEIGHT}}
    return f"first-{panel.id}", chart.title, drawn


def _bars(work: Work, look: Mapping[str, Style], verdict: Verdict, least: int, *, several_kinds: bool) -> Figure:
    """A bar for each system, the fastest at the top; pale where it may not be compared with the headline's.

    `least`: height in pixels that it has at least.
    """
    known = [(series, placed) for series in work.series if (placed := series.on(verdict.gpus))]
    known.sort(key=lambda each: -_rate(each[1]))
    data: list[dict[str, Any]] = []
    names = []
    for series, placed in known:
        name = f"{label(series.label)}  {number(_rate(placed))}"
        names.append(name)
        apart = placed.place in verdict.apart
        data += _bar(work, series, placed, name, look[series.system], apart=apart, several_kinds=several_kinds)
    layout = bar_layout(names, {**rate_of(work.unit).axis, "nticks": 5})
    layout["yaxis"]["categoryarray"] = names
    layout["height"] = max(layout["height"], least)
    return {"data": data, "layout": layout}


def _bar(
    work: Work, series: ScalingSeries, placed: Placed, name: str, style: Style, *, apart: bool, several_kinds: bool
) -> list[dict[str, Any]]:
    rate = placed.cell.steps_per_s
    assert rate is not None
    said = rate_of(work.unit).hover(rate, "x")
    bar = {
        "type": "bar",
        "orientation": "h",
        "name": label(series.label),
        "x": [rate.value],
        "y": [name],
        "marker": style.bar(series.kind if several_kinds else "measured"),
        "opacity": APART if apart else 1,
        "hovertemplate": f"%{{fullData.name}}{' (not comparable)' if apart else ''}<br>{said}<extra></extra>",
        "meta": {"facets": series.facets},
    }
    ends = intervals([(name, rate)], style, series.label, horizontal=True, facets=series.facets)
    return [bar, *map(upon_bar, ends)]


def _rate(placed: Placed) -> float:
    assert placed.cell.steps_per_s is not None
    return placed.cell.steps_per_s.value
