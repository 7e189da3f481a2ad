"""Throughput against what it may cost: policy lag, reuse of samples, discarded samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlbench.reports.page.charts.chart import Chart, Figure, PageTable, Panel
from rlbench.reports.page.charts.over_gpus import Quantity, intervals, rate_hover, rate_of, rates_of
from rlbench.reports.page.charts.over_gpus import table as table_of
from rlbench.reports.page.charts.style import Style, label, plain, styles
from rlbench.reports.page.charts.works import Placed, ScalingSeries, Work, most_common, works
from rlbench.results.records.units import StepUnit
from rlbench.results.summary.document import Estimate, Summary

ALIKE = 0.01
"""Values that differ by no larger share are drawn nowhere."""
LAG = Quantity(field="lag_mean", title="Policy lag, mean (optimiser steps)", from_zero=False)
MOST_LAG = Quantity(field="lag_max", title="largest policy lag (optimiser steps)")
USES = Quantity(field="uses_per_sample", title="Uses of each sample", from_zero=False)
USEFUL = Quantity(field="useful_fraction", title="Useful samples (learned / (learned + discarded))", from_zero=False)
PANELS = {"lag": LAG, "uses": USES, "useful": USEFUL}


def charts(summary: Summary) -> list[Chart]:
    """The rate against lag, reuse and the useful fraction, on the number of GPUs that most systems ran on.

    What is alike in all systems is not drawn.
    """
    look = styles(summary)
    made = []
    for number, work in enumerate(works(summary)):
        gpus = most_common(placed.cell.gpus for series in work.series for placed in series.finished)
        drawn = [(series, placed) for series in work.series if (placed := series.on(gpus))]
        quantities = {
            name: quantity
            for name, quantity in PANELS.items()
            if _differ([known.value for _, placed in drawn if (known := quantity.of(placed.cell)) is not None])
        }
        if not quantities:
            continue
        what = f"Throughput beside lag and use of samples, on {work.count(gpus)}"
        title = work.titled(what, (placed for _, placed in drawn))
        numbers = table_of(work, title, [*rates_of(work.unit), LAG, MOST_LAG, USES, USEFUL])
        made.append(
            Chart(
                title=title,
                panels=[
                    Panel(
                        id=f"{name}-{number}",
                        figure=_figure(drawn, look, quantity, work.unit),
                        title=f"{rate_of(work.unit).title} against {quantity.title[0].lower()}{quantity.title[1:]}",
                    )
                    for name, quantity in quantities.items()
                ],
                table=PageTable(
                    caption=work.titled("The same, on each number of GPUs"),
                    columns=numbers.columns,
                    rows=numbers.rows,
                    num_names=2,
                    facets=numbers.facets,
                ),
                notes=_not_drawn(work, gpus),
                facets=work.facets,
            )
        )
    return made


def _differ(values: Sequence[float]) -> bool:
    """Whether some values differ by more than `ALIKE`."""
    return len(values) > 1 and max(values) - min(values) > ALIKE * max(map(abs, values))


def _not_drawn(work: Work, gpus: int) -> list[str]:
    others = [series.label for series in work.series if series.finished and not series.on(gpus)]
    return [f"Not drawn, for it was not run on {work.count(gpus)}: {', '.join(others)}."] if others else []


def _figure(
    drawn: list[tuple[ScalingSeries, Placed]], look: Mapping[str, Style], quantity: Quantity, unit: StepUnit
) -> Figure:
    data: list[dict[str, Any]] = []
    for series, placed in drawn:
        rate, at = placed.cell.steps_per_s, quantity.of(placed.cell)
        if rate is None or at is None:
            continue
        style = look[series.system]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(series.label),
                "legendgroup": plain(series.label),
                "x": [at.value],
                "y": [rate.value],
                "marker": {**style.marker(series.kind), "size": 11},
                "hovertemplate": _hover(quantity, rate, unit),
                "meta": {"facets": placed.facets},
            }
        )
        data += intervals([(at.value, rate)], style, series.label, facets=placed.facets)
    return {"data": data, "layout": {"xaxis": quantity.axis, "yaxis": rate_of(unit).axis, "height": 340}}


def _hover(quantity: Quantity, rate: Estimate, unit: StepUnit) -> str:
    said = f"{rate_hover(rate, unit)}<br>{plain(quantity.title)}: %{{x:{quantity.hover_format}}}"
    return f"%{{fullData.name}}<br>{said}<extra></extra>"
