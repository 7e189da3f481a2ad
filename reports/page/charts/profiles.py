"""How well systems learned over all tasks of a sweep: performance profiles, and the probability of improvement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rlbench.reports.figures import format as fmt
from rlbench.reports.page.charts.chart import Chart, Entry, Figure, PageTable, Panel, Piece, datum, estimated, words
from rlbench.reports.page.charts.learning import METRICS
from rlbench.reports.page.charts.style import Style, label, plain, styles
from rlbench.reports.page.charts.works import most_common, with_kinds
from rlbench.results.summary.document import AcrossTasks, Summary

MOST_COLUMNS = 12
"""Maximum number of thresholds in the table."""
NOTE = (
    "The share of runs that ended above each value, mean over tasks: a line that is higher is better. Final: "
    "interquartile mean over the runs of all tasks, with its 95 % interval, from seeds."
)
_Placed = tuple[int, AcrossTasks]


def charts(summary: Summary) -> list[Chart]:
    """The profiles of each sweep, on the number of GPUs that most systems learned on; none of single runs."""
    groups: dict[tuple[str, str, str, tuple[str, ...]], list[_Placed]] = defaultdict(list)
    for place, each in enumerate(summary.across_tasks):
        groups[each.sweep, each.kind, each.metric, tuple(each.tasks)].append((place, each))
    several = len({each.sweep for each in summary.across_tasks}) > 1
    look = styles(summary)
    made = []
    for number, ((sweep, _, metric, tasks), group) in enumerate(groups.items()):
        gpus = most_common(each.gpus for _, each in group)
        drawn = [each for each in group if each[1].gpus == gpus]
        if not any(0 < share < 1 for _, each in drawn for share in each.shares):
            continue  # of each system one run, or all alike: bars of what was learned say more
        where = f"on {gpus} {'GPU' if gpus == 1 else 'GPUs'}{f', sweep {sweep}' if several else ''}"
        name = with_kinds("; ".join(tasks), [drawn[0][1].kind])
        title = f"Performance profiles over {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'} {where}: {name}"
        made.append(
            Chart(
                title=title,
                panels=[Panel(id=f"profile-{number}", figure=_figure([each for _, each in drawn], look, metric))],
                table=_table(drawn, summary.reference, f"{title}. Some of the thresholds"),
                notes=[NOTE, *_better(drawn, summary.reference)],
            )
        )
    return made


def _figure(drawn: Sequence[AcrossTasks], look: Mapping[str, Style], metric: str) -> Figure:
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": label(each.system),
            "legendgroup": plain(each.system),
            "x": each.thresholds,
            "y": each.shares,
            "line": {**look[each.system].line(each.kind), "shape": "hv"},
            "hovertemplate": f"%{{fullData.name}}<br>above {plain(metric)} %{{x:.3~r}}: "
            "%{y:.0%} of runs<extra></extra>",
            "meta": {"facets": {"system": each.system, "gpus": each.gpus}, "end": plain(each.system)},
        }
        for each in drawn
    ]
    last = max(each.thresholds[each.shares.index(0)] for each in drawn)  # the share above the best run is 0
    first = drawn[0].thresholds[0]
    room = 0.05 * ((last - first) or 1.0)
    title = {"text": f"Final {plain(METRICS.get(metric, metric))}"}
    x = {"title": title, "range": [first - room, last + room]}
    y = {"title": {"text": "Share of runs above"}, "tickformat": ".0%", "range": [-0.02, 1.02]}
    return {"data": data, "layout": {"xaxis": x, "yaxis": y}}


def _better(drawn: Sequence[_Placed], reference: str | None) -> list[str]:
    """A note that explains the column of improvement, if there is one."""
    known = [each for _, each in drawn if each.improvement is not None]
    if not known:
        return []
    counted = "the share of all pairs of runs on the same task, one of either, in which it ended better"
    return [f"Better than {reference}: {counted}; ties count half. It has no interval: a few seeds make few pairs."]


def _table(drawn: Sequence[_Placed], reference: str | None, caption: str) -> PageTable:
    axis = drawn[0][1].thresholds
    kept = range(0, len(axis), -(-len(axis) // MOST_COLUMNS))
    return PageTable(
        caption=caption,
        columns=["system", "runs", "final", f"better than {reference}", *(f"above {axis[at]:.3g}" for at in kept)],
        rows=[_row(place, each, kept) for place, each in drawn],
        facets=[{"system": each.system, "gpus": each.gpus} for _, each in drawn],
    )


def _row(place: int, each: AcrossTasks, kept: range) -> list[Entry]:
    path = f"across_tasks.{place}"
    return [
        words(each.system),
        datum(f"{path}.num_runs", each.num_runs, lambda value: f"{value:.0f}"),
        estimated(f"{path}.final", each.final),
        (Piece("-"),) if each.improvement is None else datum(f"{path}.improvement", each.improvement, fmt.percent),
        *(datum(f"{path}.shares.{at}", each.shares[at], fmt.percent) for at in kept),
    ]
