"""Homogeneous beside heterogeneous workloads: what it costs a system if environments differ."""

from __future__ import annotations

from typing import Any

from rlbench.reports.page.charts.chart import Chart, Entry, PageTable, Panel, interval_notes, words
from rlbench.reports.page.charts.over_gpus import intervals, rate_hover, rate_of, rates_of
from rlbench.reports.page.charts.scaling import EFFICIENCY, SCALING
from rlbench.reports.page.charts.style import label, plain, styles
from rlbench.reports.page.charts.works import Placed, ScalingSeries, Work, with_kinds, works
from rlbench.results.summary.document import Summary

WORKLOADS = ("homogeneous", "heterogeneous")
Pair = tuple[ScalingSeries, Placed, Placed]
"""A series of the homogeneous workload, and the two cells on the same number of GPUs."""


def charts(summary: Summary) -> list[Chart]:
    """Steps/s on both workloads, for each scenario that was run on both, on the most GPUs that have both."""
    found = works(summary)
    made = []
    for number, work in enumerate(found):
        other = next((w for w in found if w.scenario == work.scenario and w.workload == WORKLOADS[1]), None)
        if work.workload != WORKLOADS[0] or other is None:
            continue
        pairs = [pair for series in work.series if (pair := _pair(series, other))]
        if pairs:
            made.append(_chart(summary, f"workloads-{number}", work, pairs))
    return made


def _pair(series: ScalingSeries, other: Work) -> Pair | None:
    """The cells of both workloads, of the same sweep and settings, on the most GPUs that have both."""
    first = series.cells[0].cell
    own = (first.system, first.sweep, first.device, first.protocol, first.time_scale, first.kind)
    for twin in other.series:
        cell = twin.cells[0].cell
        if (cell.system, cell.sweep, cell.device, cell.protocol, cell.time_scale, cell.kind) != own:
            continue
        for gpus in sorted((each.cell.gpus for each in series.finished), reverse=True):
            a, b = series.on(gpus), twin.on(gpus)
            if a is not None and b is not None:
                return series, a, b
    return None


def _chart(summary: Summary, name: str, work: Work, pairs: list[Pair]) -> Chart:
    look, rates = styles(summary), rates_of(work.unit)
    data: list[dict[str, Any]] = []
    rows: list[list[Entry]] = []
    for series, *both in pairs:
        known = [(each.cell.workload, rate) for each in both if (rate := each.cell.steps_per_s) is not None]
        style = look[series.system]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{label(series.label)} x{both[0].cell.gpus}",
                "legendgroup": plain(series.label),
                "x": [workload for workload, _ in known],
                "y": [rate.value for _, rate in known],
                "line": style.line(series.kind),
                "marker": style.marker(series.kind),
                "hovertemplate": [
                    f"%{{fullData.name}}, %{{x}}<br>{rate_hover(rate, work.unit)}<extra></extra>" for _, rate in known
                ],
                "meta": {"facets": both[0].facets, "end": plain(series.label)},
            }
        )
        data += intervals(known, style, series.label, facets=both[0].facets)
        for each in both:
            columns = [quantity.entry(each) for quantity in (*rates, SCALING, EFFICIENCY)]
            rows.append([words(series.label), words(each.cell.workload), words(f"{each.cell.gpus:,}"), *columns])
    title = f"Homogeneous beside heterogeneous: {with_kinds(work.scenario, {series.kind for series, *_ in pairs})}"
    layout = {"xaxis": {"type": "category", "title": {"text": "Workload"}}, "yaxis": rate_of(work.unit).axis}
    return Chart(
        title=title,
        panels=[Panel(id=name, figure={"data": data, "layout": layout})],
        table=PageTable(
            caption=title,
            columns=["system", "workload", work.gpus_title, *(each.title for each in (*rates, SCALING, EFFICIENCY))],
            rows=rows,
            num_names=3,
            facets=[{**each.facets, "workload": each.cell.workload} for _, *both in pairs for each in both],
        ),
        notes=[
            "Of each system, on the most GPUs that have both.",
            *interval_notes(each.cell.steps_per_s for _, *both in pairs for each in both),
        ],
        facets={"scenario": work.scenario},
    )
