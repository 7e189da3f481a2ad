"""Speed-up and efficiency against the number of GPUs, and steps/s beside published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlbench.reports.figures.format import factor, percent
from rlbench.reports.page.charts.chart import (
    Chart,
    Entry,
    Facets,
    Figure,
    PageTable,
    Panel,
    datum,
    interval_notes,
    words,
)
from rlbench.reports.page.charts.over_gpus import Quantity, figure, gpus_axis, names, rate_of, table
from rlbench.reports.page.charts.style import NEUTRAL, Style, label, plain, styles
from rlbench.reports.page.charts.works import ScalingSeries, Work, works
from rlbench.results.records import labels, units
from rlbench.results.summary.document import Summary

SCALING = Quantity(field="scaling", title="Speed-up (x)", write=factor, tick=",", hover_format=".3~r", unit="x")
WELL = 0.8
"""Efficiency from which a system is said to scale well."""
LINEAR = 1.005
"""Efficiency that is written as more than 100 %."""
EFFICIENCY = Quantity(field="efficiency", title="Efficiency (%)", write=percent, tick=".0%", hover_format=".1%")


def charts(summary: Summary) -> list[Chart]:
    """For each work, speed-up on logarithmic axes with the ideal line, and efficiency: speed-up as a share of it."""
    look = styles(summary)
    made = []
    for number, work in enumerate(works(summary)):
        scaled = _scaled(work)
        if not scaled.series:
            continue
        bases = {each.cell.scaling_base_gpus for series in scaled.series for each in series.finished}
        known = sorted(base for base in bases if base)
        panels = [
            Panel(
                id=f"{name}-{number}",
                figure=_relative(scaled, look, quantity, known, log=log),
                title=f"{quantity.title.partition(' (')[0]} relative to {work.count(min(known, default=1))}",
            )
            for name, quantity, log in (("speed-up", SCALING, True), ("efficiency", EFFICIENCY, False))
        ]
        title = work.titled(f"How {units.rate(work.unit)} scale with GPUs")
        intervals = (quantity.of(placed.cell) for placed in scaled.cells for quantity in (SCALING, EFFICIENCY))
        made.append(
            Chart(
                title=title,
                panels=panels,
                table=table(scaled, title, [rate_of(work.unit), SCALING, EFFICIENCY]),
                notes=["Dashed: linear scaling.", *interval_notes(intervals), *work.not_drawn()],
                told=_in_words(scaled),
                told_title="How far each system scales, by the estimates alone",
                facets=work.facets,
            )
        )
    return made


def falls(work: Work) -> dict[str, list[tuple[str, Facets]]]:
    """By the number of GPUs from which efficiency is below `WELL`, in words: the names of systems, and their facets."""
    froms: dict[str, list[tuple[str, Facets]]] = {}
    for name, said, facets in _in_words(_scaled(work)):
        froms.setdefault(said.partition(";")[0], []).append((name, facets))
    return froms


def _in_words(work: Work) -> list[tuple[str, str, Facets]]:
    """Where each system's efficiency falls below `WELL` for good, and what it is on the most GPUs."""
    said: list[tuple[str, str, Facets]] = []
    for series in work.series:
        known = [(each.cell.gpus, each.cell.efficiency.value) for each in series.finished if each.cell.efficiency]
        below = len(known)
        while below and known[below - 1][1] < WELL:
            below -= 1
        if known:
            falls = (
                f"below {WELL:.0%} from {work.count(known[below][0])}"
                if below < len(known)
                else f"never below {WELL:.0%}"
            )
            last = f"{known[-1][1]:.0%} on {work.count(known[-1][0])}"
            said.append((series.label, "; ".join([falls, last, *_above_linear(work, series)]), series.facets))
    return said


def _above_linear(work: Work, series: ScalingSeries) -> list[str]:
    """The largest efficiency, if that is above 100 %, and whether its interval leaves that open."""
    known = [(each.cell.efficiency, each.cell.gpus) for each in series.finished if each.cell.efficiency]
    efficiency, gpus = max(known, key=lambda each: each[0].value)
    if efficiency.value <= LINEAR:
        return []
    sure = efficiency.low is not None and efficiency.low > 1
    unsure = "" if sure else " (no interval)" if efficiency.low is None else " (not significantly above 100%)"
    return [f"up to {efficiency.value:.0%} on {work.count(gpus)}{unsure}"]


def _relative(work: Work, look: Mapping[str, Style], quantity: Quantity, bases: Sequence[int], *, log: bool) -> Figure:
    drawn = figure(work, look, quantity)
    drawn["data"] += [_ideal(base, work.gpus, log=log) for base in bases]
    if log:
        drawn["layout"]["yaxis"] = quantity.log_axis
    return drawn


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


def published(summary: Summary) -> list[Chart]:
    """Steps/s with figures that a paper published of the same work, which were not measured here."""
    look = styles(summary)
    made = []
    for number, work in enumerate(each for each in works(summary) if each.published and each.gpus):
        of_papers = {each.system for _, each in work.published}
        series = [each for each in work.series if each.system in of_papers]
        drawn = figure(replace(work, series=series), look, rate_of(work.unit))
        drawn["data"] += _markers(work, look)
        if len(work.gpus) > 1:
            gpus = sorted({*work.gpus, *(each.gpus for _, each in work.published)})
            drawn["layout"] |= {"xaxis": gpus_axis(work, gpus), "yaxis": rate_of(work.unit).log_axis}
            drawn["layout"]["meta"] = {}  # a point beside a published one says something on one number of GPUs too
        title = work.titled(f"{rate_of(work.unit).title} beside published figures")
        sources = dict.fromkeys(each.source for _, each in work.published)
        made.append(
            Chart(
                title=title,
                panels=[Panel(id=f"published-{number}", figure=drawn)],
                table=_table(work, title),
                notes=[f"Published, not measured here (crosses): {'; '.join(sources)}"],
                facets=work.facets,
            )
        )
    return made


def _table(work: Work, caption: str) -> PageTable:
    """Published figures, and ours of the same system on as many GPUs."""
    rows, facets = list[list[Entry]](), list[Facets]()
    for place, each in work.published:
        ours = [(series, on) for series in work.series if series.system == each.system and (on := series.on(each.gpus))]
        figure = datum(f"published.{place}.steps_per_s", each.steps_per_s)
        for series, on in ours:
            rate = on.cell.steps_per_s
            assert rate is not None
            times = words(f"{factor(rate.value / each.steps_per_s)}x")
            rows.append([*names(series, on), rate_of(work.unit).entry(on), figure, times])
        if not ours:
            rows.append([words(each.system), words(f"{each.gpus:,}"), words("-"), figure, words("-")])
        facets += [{"system": each.system, "gpus": each.gpus}] * max(1, len(ours))
    unit = units.rate(work.unit)
    columns = ["system", work.gpus_title, f"{unit}, here", f"{unit}, published", "here / published"]
    return PageTable(caption=caption, columns=columns, rows=rows, num_names=2, facets=facets)


def _markers(work: Work, look: Mapping[str, Style]) -> list[dict[str, Any]]:
    """Markers of published figures, never joined by a line."""
    systems = dict.fromkeys(reference.system for _, reference in work.published)
    each = {system: [r for _, r in work.published if r.system == system] for system in systems}
    bars = len(work.gpus) == 1
    if bars:  # a published figure is in the row of its system
        each = {system: [r for r in of_system if r.gpus == work.gpus[0]] for system, of_system in each.items()}
    traces = []
    for system, references in each.items():
        if not references:
            continue
        rates: list[float] = [reference.steps_per_s for reference in references]
        rows = [label(next(series.label for series in work.series if series.system == system)) for _ in references]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(f"{system} (published)"),
                "x": rates if bars else [reference.gpus for reference in references],
                "y": rows if bars else rates,
                "marker": look[system].published,
                "hovertemplate": [
                    f"%{{fullData.name}}<br>on {labels.ranks(reference.gpus, 'cuda')}: "
                    f"%{{{'x' if bars else 'y'}:,.4~r}} {units.rate(work.unit)}<extra></extra>"
                    for reference in references
                ],
                "meta": {"facets": {"system": system, "gpus": [reference.gpus for reference in references]}},
            }
        )
    return traces
