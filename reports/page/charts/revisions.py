"""Throughput over revisions, and the points where it changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlbench.reports.page.charts.chart import Chart, Entry, Facets, PageTable, Panel, datum, words
from rlbench.reports.page.charts.over_gpus import intervals, rate_hover, rate_of
from rlbench.reports.page.charts.style import DASHES, SYMBOLS, label, plain, styles
from rlbench.reports.page.charts.works import with_kinds
from rlbench.results.records import units
from rlbench.results.summary.document import Estimate, HistoryRow, HistorySeries, Summary

SHORT = 10
"""Number of digits of a commit that are shown."""
NOTE = (
    "Revisions in the order in which they were measured, on one machine class. A vertical line is where the level "
    "changed: few shuffles of the series part it as well (1 %)."
)


def charts(summary: Summary) -> list[Chart]:
    """A chart for each machine class, scenario and workload of the history."""
    groups: dict[tuple[str, str, str], list[tuple[int, HistorySeries]]] = defaultdict(list)
    for place, each in enumerate(summary.history):
        groups[each.machine, each.rows[0].scenario, each.rows[0].workload].append((place, each))
    return [_chart(summary, number, key, group) for number, (key, group) in enumerate(groups.items())]


def _chart(
    summary: Summary, number: int, key: tuple[str, str, str], group: Sequence[tuple[int, HistorySeries]]
) -> Chart:
    machine, scenario, workload = key
    unit = units.common(row.unit for _, each in group for row in each.rows)
    kinds = {each.rows[-1].kind for _, each in group}
    title = f"{rate_of(unit).title} over revisions: {with_kinds(f'{scenario}, {workload}', kinds)}"
    first: dict[str, str] = {}
    for row in sorted((row for _, each in group for row in each.rows), key=lambda row: row.measured_at):
        first.setdefault(plain(row.commit[:SHORT]), row.measured_at)
    commits = list(first)
    return Chart(
        title=title,
        panels=[Panel(id=f"revisions-{number}", figure=_figure(summary, group, commits, unit))],
        table=PageTable(
            caption=f"{title}; {machine}",
            columns=["system", "GPUs", "revision", "measured", *units.rates(unit), "level, from here"],
            rows=[row for place, each in group for row in _rows(place, each, unit)],
            num_names=3,
            facets=[_facets(row) for _, each in group for row in each.rows],
        ),
        notes=[f"{machine}. {NOTE}"],
        facets={"scenario": scenario, "workload": workload},
    )


def _figure(
    summary: Summary, group: Sequence[tuple[int, HistorySeries]], commits: Sequence[str], unit: units.StepUnit
) -> dict[str, Any]:
    data: list[dict[str, Any]] = []
    shapes, names = [], _names([each for _, each in group])
    for number, (_, each) in enumerate(group):
        of_system = styles(summary)[each.rows[-1].system]
        of_series = _facets(each.rows[-1])
        look = replace(of_system, symbol=SYMBOLS[number % len(SYMBOLS)], dash=DASHES[number % len(DASHES)])
        name, kind = names[number], each.rows[-1].kind
        points = [
            (plain(row.commit[:SHORT]), Estimate(value=row.steps_per_s, low=row.low, high=row.high))
            for row in each.rows
        ]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label(name),
                "legendgroup": plain(name),
                "x": [commit for commit, _ in points],
                "y": [rate.value for _, rate in points],
                "line": look.line(kind),
                "marker": look.marker(kind),
                "hovertemplate": [
                    f"%{{fullData.name}}<br>%{{x}}: {rate_hover(rate, unit)}<extra></extra>" for _, rate in points
                ],
                "meta": {"facets": of_series, "end": plain(name)},
            }
        )
        data += intervals(points, look, name, facets=of_series)
        shapes += [
            {
                "type": "line",
                "x0": commits.index(plain(change.commit[:SHORT])) - 0.5,
                "x1": commits.index(plain(change.commit[:SHORT])) - 0.5,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": look.colour, "width": 1.5, "dash": "dot"},
            }
            for change in each.changes
        ]
    axis = {"title": {"text": "Revision"}, "type": "category", "categoryorder": "array", "categoryarray": list(commits)}
    return {"data": data, "layout": {"xaxis": axis, "yaxis": rate_of(unit).axis, "shapes": shapes}}


def _facets(row: HistoryRow) -> Facets:
    """What the page's filters know a revision by."""
    return {"system": row.system, "gpus": row.gpus, "device": row.device}


def _names(group: Sequence[HistorySeries]) -> list[str]:
    """System and GPUs; also device and length of the runs where the name would not be unique."""
    last = [each.rows[-1] for each in group]
    short = [f"{row.system} x{row.gpus}" for row in last]
    return [
        name if short.count(name) == 1 else f"{name}, {row.device}, {row.length}"
        for name, row in zip(short, last, strict=True)
    ]


def _rows(place: int, series: HistorySeries, unit: units.StepUnit) -> list[list[Entry]]:
    changes = {change.commit: at for at, change in enumerate(series.changes)}
    made = []
    for at, row in enumerate(series.rows):
        path = f"history.{place}.rows.{at}"
        change = changes.get(row.commit)
        made.append(
            [
                words(row.system),
                words(str(row.gpus)),
                words(row.commit[:SHORT]),
                words(row.measured_at[:16].replace("T", " ")),
                datum(f"{path}.steps_per_s", row.steps_per_s),
                *([datum(f"{path}.env_steps_per_s", row.env_steps_per_s)] if unit == "agent steps" else []),
                words("")
                if change is None
                else datum(f"history.{place}.changes.{change}.ratio", series.changes[change].ratio, _times),
            ]
        )
    return made


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"
