"""What each mechanism contributes: variants of a system (`ver:preempt=never`) as steps up or down from their parents.

The parent of a variant is the system with the most of its settings and no others: the plain system, or, where settings
were changed one after another, the previous variant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlbench.reports.figures.format import number
from rlbench.reports.page.charts.chart import Chart, Entry, PageTable, Panel, datum, estimated, times, words
from rlbench.reports.page.charts.over_gpus import Quantity, intervals, rate_hover, rate_of, rates_of
from rlbench.reports.page.charts.style import Style, label, plain, styles
from rlbench.reports.page.charts.works import Placed, ScalingSeries, Work, works
from rlbench.results.records import labels, units
from rlbench.results.records.units import StepUnit
from rlbench.results.summary.document import Comparison, Estimate, Summary

NOTE = (
    "The first bar is the system itself. The others begin at the {rate} of what the variant changes and end at its "
    "own, where the marker is. 95 % intervals: of the variant at the marker, of the change in brackets."
)
BAR = 28
"""Width of a bar in pixels."""
BESIDE = "\u2003"
"""An em space, which keeps texts off the bars."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AblationStep:
    """A variant and its parent, which is None for the system itself."""

    series: ScalingSeries
    placed: Placed
    rate: Estimate
    parent: AblationStep | None


def charts(summary: Summary) -> list[Chart]:
    """Waterfalls of each system with several variants in a work, for each number of GPUs of all of them."""
    look = styles(summary)
    made: list[Chart] = []
    for place, work in enumerate(works(summary)):
        for key, steps in _ablations(work):
            on_gpus = {"gpus": steps[0].placed.cell.gpus}
            what = f"What the mechanisms of {steps[0].series.label} give, on {work.count(on_gpus['gpus'])}"
            title = work.titled(what, (step.placed for step in steps))
            made.append(
                Chart(
                    title=title,
                    panels=[Panel(id=f"ablation-{place}-{len(made)}", figure=_figure(steps, look, work.unit, summary))],
                    table=PageTable(
                        caption=title,
                        columns=[
                            *("variant", "changes", f"its {units.rate(work.unit)}"),
                            *(*units.rates(work.unit), "times as many"),
                        ],
                        rows=[_row(step, summary, rates_of(work.unit)) for step in steps],
                        facets=[step.placed.facets for step in steps],
                    ),
                    notes=[NOTE.format(rate=units.rate(work.unit))],
                    facets={**work.facets, **on_gpus},
                    one_of=f"{work.name}: {key}",
                )
            )
    return made


def _ablations(work: Work) -> Iterator[tuple[str, list[AblationStep]]]:
    groups: dict[tuple[Any, ...], list[ScalingSeries]] = defaultdict(list)
    for series in (each for each in work.series if each.finished):
        cell = series.cells[0].cell
        base, _ = labels.parts(series.system)
        groups[base, cell.sweep, cell.device, cell.protocol, cell.time_scale, cell.kind].append(series)
    for key, group in groups.items():
        common = set.intersection(*({placed.cell.gpus for placed in series.finished} for series in group))
        if len(group) > 1:
            for gpus in sorted(common, reverse=True):
                yield str(key), _steps(group, gpus)


def _steps(group: Sequence[ScalingSeries], gpus: int) -> list[AblationStep]:
    """The variants, each after its parent."""
    steps: list[AblationStep] = []
    for series in sorted(group, key=lambda series: len(labels.parts(series.system)[1])):
        placed = series.on(gpus)
        assert placed is not None
        assert placed.cell.steps_per_s is not None
        name = labels.parent(series.system, [step.series.system for step in steps])
        parent = next((step for step in steps if step.series.system == name), None)
        if parent is None and steps:  # there are variants but no plain system: the first replaces it
            parent = steps[0]
        steps.append(AblationStep(series=series, placed=placed, rate=placed.cell.steps_per_s, parent=parent))
    return steps


def _figure(
    steps: Sequence[AblationStep], look: Mapping[str, Style], unit: StepUnit, summary: Summary
) -> dict[str, Any]:
    data = [_bar(step, look[step.series.system]) for step in steps]
    for step in steps:
        name, style = label(step.series.label), look[step.series.system]
        data.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "text": [_change(step, summary)],
                "textposition": "middle right",
                "name": name,
                "legendgroup": plain(step.series.label),
                "x": [name],
                "y": [step.rate.value],
                "marker": style.marker(step.series.kind),
                "hovertemplate": f"%{{x}}<br>{rate_hover(step.rate, unit)}<extra></extra>",
                "meta": {"facets": step.placed.facets},
            }
        )
        data += intervals([(name, step.rate)], style, step.series.label, facets=step.placed.facets)
    names = [label(step.series.label) for step in steps]
    return {
        "data": data,
        "layout": {
            "height": 320,
            "xaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": names,
                "range": [-0.5, len(names) - 0.05],
            },
            "yaxis": rate_of(unit).axis,
            "showlegend": False,
        },
    }


def _bar(step: AblationStep, style: Style) -> dict[str, Any]:
    """A broad line from the parent's rate to the variant's; of the system itself, from 0."""
    name, begin = label(step.series.label), 0.0 if step.parent is None else step.parent.rate.value
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [name, name],
        "y": [begin, step.rate.value],
        "line": {"color": style.colour, "width": BAR},
        "opacity": 0.6,
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": {"facets": step.placed.facets},
    }


def _change(step: AblationStep, summary: Summary) -> str:
    """What is written beside a marker: the rate, and how it differs from the parent's, with the interval of that."""
    if step.parent is None:
        return f"{BESIDE}{number(step.rate.value)}"
    said = f"{BESIDE}{number(step.rate.value)}<br>{BESIDE}{100 * (step.rate.value / step.parent.rate.value - 1):+.0f} %"
    found = _compared(step, step.parent, summary)
    low, high = (found[1].ratio.low, found[1].ratio.high) if found else (None, None)
    if found is None or low is None or high is None:
        return said
    ends = (low, high) if found[1].system == step.placed.cell.system else (1 / high, 1 / low)
    return f"{said} [{', '.join(f'{100 * (end - 1):+.0f}' for end in ends)}]"


def _row(step: AblationStep, summary: Summary, rates: Sequence[Quantity]) -> list[Entry]:
    own, parent = step.placed, step.parent
    if parent is None:
        return [
            words(step.series.label),
            words("-"),
            words("-"),
            *(rate.entry(own) for rate in rates),
            words("-"),
        ]
    return [
        words(step.series.label),
        words(parent.series.label),
        datum(parent.placed.path("steps_per_s.value"), parent.rate.value, number),
        *(rate.entry(own) for rate in rates),
        _ratio(step, parent, summary),
    ]


def _ratio(step: AblationStep, parent: AblationStep, summary: Summary) -> Entry:
    """The variant's rate as a multiple of its parent's, or `1 /` the inverse, if the summary compares them."""
    found = _compared(step, parent, summary)
    if found is None:
        return words("-")
    place, each = found
    entry = estimated(f"comparisons.{place}.ratio", each.ratio, times)
    return entry if each.system == step.placed.cell.system else (*words("1 / "), *entry)


def _compared(step: AblationStep, parent: AblationStep, summary: Summary) -> tuple[int, Comparison] | None:
    """The comparison of a variant with its parent, or of the parent with it, and its place in the summary."""
    own, both = step.placed.cell, {step.placed.cell.system, parent.placed.cell.system}
    group = (own.sweep, own.scenario, own.workload, own.gpus)
    for place, each in enumerate(summary.comparisons):
        if (each.sweep, each.scenario, each.workload, each.gpus) == group and {each.system, each.against} == both:
            return place, each
    return None
