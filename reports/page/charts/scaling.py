"""Throughput, speed-up and efficiency against the number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlbench.reports.figures.format import factor, percent
from rlbench.reports.page.charts.chart import Chart, Entry, PageTable, Panel, datum, interval_notes, words
from rlbench.reports.page.charts.over_gpus import Quantity, figure, gpus_axis, rate_of, rates_of, table
from rlbench.reports.page.charts.style import NEUTRAL, Style, label, plain, styles
from rlbench.reports.page.charts.works import Work, works
from rlbench.results.records import units
from rlbench.results.summary.document import Reference, Summary

SCALING = Quantity(field="scaling", title="Speed-up (x)", write=factor, tick=",", hover_format=".3~r")
EFFICIENCY = Quantity(field="efficiency", title="Efficiency (%)", write=percent, tick=".0%", hover_format=".1%")


def throughput(summary: Summary) -> list[Chart]:
    """Steps/s, with published figures of the same work."""
    look = styles(summary)
    charts = []
    for number, work in enumerate(works(summary)):
        if not work.gpus:
            continue
        rate = rate_of(work.unit)
        drawn = figure(work, look, rate)
        drawn["data"] += _published(work, look)
        if len(work.gpus) > 1:
            gpus = sorted({*work.gpus, *(each.gpus for _, each in work.published)})
            drawn["layout"] |= {"xaxis": gpus_axis(work, gpus), "yaxis": rate.log_axis}
        numbers = table(work, f"{rate.title}: {work.title}", rates_of(work.unit))
        notes = [f"{units.capitalised(units.defined(work.unit))}.", *_intervals(work, rate)]
        if work.published:
            sources = dict.fromkeys(each.source for _, each in work.published)
            notes.append(f"Published, not measured here: {'; '.join(sources)}")
        charts.append(
            Chart(
                title=f"{rate.title} on each number of GPUs: {work.title}",
                panels=[Panel(id=f"throughput-{number}", figure=drawn)],
                table=PageTable(
                    caption=numbers.caption,
                    columns=numbers.columns,
                    rows=[*numbers.rows, *(_row(place, each) for place, each in work.published)],
                    num_names=2,
                ),
                notes=[*notes, *work.not_drawn()],
            )
        )
    return charts


def _intervals(work: Work, quantity: Quantity) -> list[str]:
    return interval_notes(quantity.of(placed.cell) for placed in work.cells)


def _row(place: int, reference: Reference) -> list[Entry]:
    return [
        words(f"{reference.system} (published)"),
        words(f"{reference.gpus} GPUs (published)"),
        datum(f"published.{place}.steps_per_s", reference.steps_per_s),
    ]


def _published(work: Work, look: Mapping[str, Style]) -> list[dict[str, Any]]:
    """Markers of published figures, never joined by a line."""
    systems = dict.fromkeys(reference.system for _, reference in work.published)
    each = {system: [r for _, r in work.published if r.system == system] for system in systems}
    if len(work.gpus) == 1:  # bars: a published figure is in the row of its system
        each = {system: [r for r in of_system if r.gpus == work.gpus[0]] for system, of_system in each.items()}
    traces = []
    for system, references in each.items():
        if not references:
            continue
        rates: list[float] = [reference.steps_per_s for reference in references]
        rows = [label(next(series.label for series in work.series if series.system == system)) for _ in references]
        bars = len(work.gpus) == 1
        along = "x" if bars else "y"
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(f"{system} (published)"),
                "x": rates if bars else [reference.gpus for reference in references],
                "y": rows if bars else rates,
                "marker": look[system].published,
                "hovertemplate": f"%{{fullData.name}}<br>%{{{along}:,.4~r}} {units.rate(work.unit)}<extra></extra>",
            }
        )
    return traces


def speed_up(summary: Summary) -> list[Chart]:
    """Speed-up on logarithmic axes, with the ideal line."""
    return _relative(summary, SCALING, "speed-up", "Speed-up: {rate} relative to the fewest GPUs", log=True)


def efficiency(summary: Summary) -> list[Chart]:
    """Efficiency: speed-up as a share of the ideal."""
    return _relative(summary, EFFICIENCY, "efficiency", "Efficiency: speed-up as a share of the ideal", log=False)


def _relative(summary: Summary, quantity: Quantity, name: str, title: str, *, log: bool) -> list[Chart]:
    look = styles(summary)
    charts = []
    for number, work in enumerate(works(summary)):
        scaled = _scaled(work)
        if not scaled.series:
            continue
        drawn = figure(scaled, look, quantity)
        bases = {each.cell.scaling_base_gpus for series in scaled.series for each in series.finished}
        drawn["data"] += [_ideal(base, scaled.gpus, log=log) for base in sorted(base for base in bases if base)]
        if log:
            drawn["layout"]["yaxis"] = quantity.log_axis
        said = f"{title.format(rate=units.rate(work.unit))}: {scaled.title}"
        charts.append(
            Chart(
                title=said,
                panels=[Panel(id=f"{name}-{number}", figure=drawn)],
                table=table(scaled, said, [quantity]),
                notes=[*_intervals(scaled, quantity), *work.not_drawn()],
            )
        )
    return charts


def _scaled(work: Work) -> Work:
    """The work with only those series that have rates on two or more numbers of GPUs."""
    series = [each for each in work.series if len({placed.cell.gpus for placed in each.finished}) > 1]
    return replace(work, series=series, published=[])


def _ideal(base: int, gpus: Sequence[int], *, log: bool) -> dict[str, Any]:
    """The line of linear scaling from `base` GPUs; it is not measured."""
    along = [each for each in gpus if each >= base]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain("ideal" if base == 1 else f"ideal from {base} GPUs"),
        "x": along,
        "y": [each / base if log else 1 for each in along],
        "line": {"color": NEUTRAL, "width": 1.5, "dash": "longdash"},
        "hoverinfo": "skip",
    }
