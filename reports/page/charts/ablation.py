"""What each mechanism gives: the variants of a system (`ver:preempt=never`) as steps up or down from what they change.

A variant hangs on the one that has the most of its settings and no other: on the plain system, or, where settings were
changed one after the other, on the one before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.figures.format import number
from reports.page.charts.chart import Chart, Entry, Panel, Table, datum, estimated, times, words
from reports.page.charts.over_gpus import STEPS_PER_S, intervals
from reports.page.charts.style import Style, label, plain, styles
from reports.page.charts.works import Placed, Series, Work, works
from results.records import labels
from results.summary.document import Estimate, Summary

UP, DOWN, WHOLE = "#009E73", "#D55E00", "#808080"
"""Of a variant that is faster than what it changes, of one that is slower, and of the system itself."""
NOTE = (
    "Each bar goes from the steps/s of what the variant changes to its own; the grey one is the system itself. "
    "Markers and 95 % intervals are the variant's own."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A variant, and what it hangs on: None for the system itself."""

    series: Series
    placed: Placed
    rate: Estimate
    parent: Step | None


def charts(summary: Summary) -> list[Chart]:
    """A waterfall for each system of which a work has several variants, on the most GPUs of all of them."""
    look = styles(summary)
    made: list[Chart] = []
    for place, work in enumerate(works(summary)):
        for base, steps in _ablations(work):
            where = f"{work.count(steps[0].placed.cell.gpus)}: {work.title_for(step.placed for step in steps)}"
            title = f"What the mechanisms of {base} give, on {where}"
            made.append(
                Chart(
                    title=title,
                    panels=[Panel(id=f"ablation-{place}-{len(made)}", figure=_figure(steps, look))],
                    table=Table(
                        caption=title,
                        columns=["variant", "changes", "its steps/s", "steps/s", "times as many"],
                        rows=[_row(step, summary) for step in steps],
                    ),
                    notes=[NOTE],
                )
            )
    return made


def _ablations(work: Work) -> Iterator[tuple[str, list[Step]]]:
    groups: dict[tuple[Any, ...], list[Series]] = defaultdict(list)
    for series in (each for each in work.series if each.finished):
        cell = series.cells[0].cell
        base, _ = labels.parts(series.system)
        groups[base, cell.sweep, cell.device, cell.protocol, cell.time_scale, cell.kind].append(series)
    for (base, *_), group in groups.items():
        common = set.intersection(*({placed.cell.gpus for placed in series.finished} for series in group))
        if len(group) > 1 and common:
            yield base, _steps(group, max(common))


def _steps(group: Sequence[Series], gpus: int) -> list[Step]:
    """The variants, each after what it hangs on."""
    steps: list[Step] = []
    for series in sorted(group, key=lambda series: len(labels.parts(series.system)[1])):
        placed = series.on(gpus)
        assert placed is not None
        assert placed.cell.steps_per_s is not None
        name = labels.parent(series.system, [step.series.system for step in steps])
        parent = next((step for step in steps if step.series.system == name), None)
        if parent is None and steps:  # two variants, and no plain system: the first stands for it
            parent = steps[0]
        steps.append(Step(series=series, placed=placed, rate=placed.cell.steps_per_s, parent=parent))
    return steps


def _figure(steps: Sequence[Step], look: Mapping[str, Style]) -> dict[str, Any]:
    data: list[dict[str, Any]] = [_whole(steps), _floating(steps)]
    for step in steps:
        name, style = label(step.series.label), look[step.series.system]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "legendgroup": plain(step.series.label),
                "x": [name],
                "y": [step.rate.value],
                "marker": style.marker(step.series.kind),
                "hovertemplate": f"%{{x}}<br>{STEPS_PER_S.hover(step.rate, 'y')} steps/s<extra></extra>",
            }
        )
        data += intervals([(name, step.rate)], style, step.series.label)
    names = [label(step.series.label) for step in steps]
    return {
        "data": data,
        "layout": {
            "xaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": names,
                "rangeslider": {"visible": False},
            },
            "yaxis": STEPS_PER_S.axis,
            "showlegend": False,
        },
    }


def _whole(steps: Sequence[Step]) -> dict[str, Any]:
    """Bars from 0: of what hangs on nothing."""
    whole = [step for step in steps if step.parent is None]
    return {
        "type": "bar",
        "x": [label(step.series.label) for step in whole],
        "y": [step.rate.value for step in whole],
        "marker": {"color": WHOLE, "opacity": 0.5},
        "width": 0.5,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _floating(steps: Sequence[Step]) -> dict[str, Any]:
    """Bars from what a variant changes to itself. A candlestick takes both ends as they are."""
    ends = [(step, step.parent.rate.value, step.rate.value) for step in steps if step.parent is not None]
    return {
        "type": "candlestick",
        "x": [label(step.series.label) for step, _, _ in ends],
        "open": [begin for _, begin, _ in ends],
        "close": [end for _, _, end in ends],
        "low": [min(begin, end) for _, begin, end in ends],
        "high": [max(begin, end) for _, begin, end in ends],
        "increasing": {"line": {"color": UP, "width": 1.5}},
        "decreasing": {"line": {"color": DOWN, "width": 1.5}},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _row(step: Step, summary: Summary) -> list[Entry]:
    own, parent = step.placed, step.parent
    if parent is None:
        return [
            words(step.series.label),
            words("-"),
            words("-"),
            estimated(own.path("steps_per_s"), step.rate),
            words("-"),
        ]
    return [
        words(step.series.label),
        words(parent.series.label),
        datum(parent.placed.path("steps_per_s.value"), parent.rate.value, number),
        estimated(own.path("steps_per_s"), step.rate),
        _ratio(step, parent, summary),
    ]


def _ratio(step: Step, parent: Step, summary: Summary) -> Entry:
    """How many times the parent's steps/s, or the variant's is of the parent's, as far as the summary compares them."""
    own, other = step.placed.cell, parent.placed.cell
    group = (own.sweep, own.scenario, own.workload, own.gpus)
    for place, each in enumerate(summary.comparisons):
        if (each.sweep, each.scenario, each.workload, each.gpus) != group:
            continue
        if (each.system, each.against) == (own.system, other.system):
            return estimated(f"comparisons.{place}.ratio", each.ratio, times)
        if (each.system, each.against) == (other.system, own.system):
            return (*words("1 / "), *estimated(f"comparisons.{place}.ratio", each.ratio, times))
    return words("-")
