"""Learning curves, final results, and the cost of reaching a threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import unit_of
from rlbench.reports.figures.format import NONE
from rlbench.reports.page.charts.chart import (
    Chart,
    Entry,
    Figure,
    PageTable,
    Panel,
    Piece,
    datum,
    estimated,
    words,
)
from rlbench.reports.page.charts.over_gpus import bar_layout, hover_ends, intervals, upon_bar
from rlbench.reports.page.charts.style import NEUTRAL, Style, label, plain, styles
from rlbench.reports.page.charts.works import Placed, Work, most_common, works
from rlbench.results.records import units
from rlbench.results.statistics.learning_curves import Cost
from rlbench.results.summary.document import CurvePoint, Estimate, Learning, Summary, ToThreshold

THINNED = 6
"""Step between the points of a curve that the table lists."""
COSTS: tuple[Cost, ...] = ("env_steps", "seconds", "gpu_seconds")
"""Of tables."""
AXES: tuple[Cost, ...] = ("env_steps", "seconds")
"""Of charts, whose systems have as many GPUs as each other: against GPU-seconds the curves would be the same."""
TICK = {"tickformat": "~s"}
METRICS = {"success": "success (0 to 1)", "return": "return"}
VERDICTS = {"worse": "learns worse", "not worse": "not worse", "unknown": "cannot be told", None: "-"}
RESULTS = (
    "Final: the last 100 episodes of each run, interquartile mean over runs. Mean over {unit}: the area under the "
    "curves, as far as all runs of the same work on as many GPUs went. 95 % intervals, from seeds."
)
THRESHOLDS = (
    "Median over runs (Kaplan and Meier), with its 95 % interval. An open triangle: too many runs never got there; "
    "it stands where they had spent what they spent, and the cost is more than that."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedCell:
    """A cell that has learned."""

    label: str
    placed: Placed
    learning: Learning
    style: Style

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.placed.cell.gpus

    def path(self, field: str) -> str:
        """Path of a field of its learning in the summary."""
        return self.placed.path(f"learning.{field}")


def _learners(work: Work, look: Mapping[str, Style]) -> list[LearnedCell]:
    return [
        LearnedCell(label=series.label, placed=placed, learning=placed.cell.learning, style=look[series.system])
        for series in work.series
        for placed in series.cells
        if placed.cell.learning is not None
    ]


def _side_by_side(learners: Sequence[LearnedCell]) -> list[LearnedCell]:
    """The learners on the number of GPUs that most of them ran on."""
    gpus = most_common(learner.gpus for learner in learners)
    return [learner for learner in learners if learner.gpus == gpus]


def _titled(work: Work, what: str, drawn: Sequence[LearnedCell]) -> str:
    return work.titled(f"{what} on {work.count(drawn[0].gpus)}", (each.placed for each in drawn))


def _somebody_learned(learners: Sequence[LearnedCell]) -> bool:
    """Whether any curve has more than one value: a chart of none would be a line at 0."""
    return any(len({point.value for point in learner.learning.curve}) > 1 for learner in learners)


def _named(cost: Cost, learners: Sequence[LearnedCell]) -> str:
    """The title of an axis."""
    steps = units.capitalised(unit_of(each.placed.cell for each in learners))
    return {"env_steps": steps, "seconds": "Seconds", "gpu_seconds": "GPU-seconds"}[cost]


def _each(summary: Summary) -> Iterator[tuple[int, Work, list[LearnedCell]]]:
    look = styles(summary)
    for number, work in enumerate(works(summary)):
        if learners := _learners(work, look):
            yield number, work, learners


def _metric(learners: Sequence[LearnedCell]) -> str:
    return " or ".join(dict.fromkeys(METRICS.get(each.learning.metric, each.learning.metric) for each in learners))


def curves(summary: Summary) -> list[Chart]:
    """The metric against samples and seconds, on the number of GPUs that most systems ran on."""
    made = []
    for number, work, all_learners in _each(summary):
        learners = [learner for learner in all_learners if learner.learning.curve]
        if not _somebody_learned(learners):
            continue
        drawn = _side_by_side(learners)
        metric, names = _metric(drawn), {cost: _named(cost, drawn) for cost in AXES}
        title = _titled(work, "Learning curves", drawn)
        notes = ["Mean over runs of the last 100 episodes; shaded from the lowest to the highest run, no interval."]
        if len(drawn) < len(learners):
            notes.append(f"On {work.count(drawn[0].gpus)}; the tables of results have all.")
        if apart := [each for each in all_learners if not each.learning.curve]:
            named = "; ".join(f"{each.label} on {work.count(each.gpus)}" for each in apart)
            notes.append(f"Not drawn, for no {work.unit} are covered by the curves of all runs: {named}.")
        made.append(
            Chart(
                title=title,
                panels=[
                    Panel(
                        id=f"learning-{cost.replace('_', '-')}-{number}",
                        figure=_curves(drawn, cost, metric),
                        title=f"{metric.partition(' ')[0].capitalize()} against {name[0].lower()}{name[1:]}",
                    )
                    for cost, name in names.items()
                ],
                table=PageTable(
                    caption=f"{title}. Every {THINNED}th point; all of them are in the JSON below",
                    columns=["system", work.unit, "seconds", "GPU-seconds", metric, "lowest run", "highest run"],
                    rows=[row for learner in drawn for row in _points(learner)],
                    facets=[learner.placed.facets for learner in drawn for _ in _points(learner)],
                ),
                notes=notes,
                facets=work.facets,
            )
        )
    return made


def _along(learner: LearnedCell, cost: Cost) -> list[float]:
    """The costs of the points of a curve."""
    return [getattr(point, cost) for point in learner.learning.curve]


def _curves(learners: Sequence[LearnedCell], cost: Cost, metric: str) -> Figure:
    data: list[dict[str, Any]] = []
    named = _named(cost, learners)
    for learner in learners:
        x, points = _along(learner, cost), learner.learning.curve
        group = {
            "type": "scatter",
            "name": label(learner.label),
            "legendgroup": plain(learner.label),
            "meta": {"facets": learner.placed.facets},
        }
        if all(point.low is not None for point in points):
            edge = {**group, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "x": x}
            data.append({**edge, "y": [point.low for point in points]})
            filled = {"fill": "tonexty", "fillcolor": learner.style.shade(0.13)}
            data.append({**edge, "y": [point.high for point in points], **filled})
        data.append(
            {
                **group,
                "mode": "lines+markers" if len(points) == 1 else "lines",
                "x": x,
                "y": [point.value for point in points],
                "line": {"color": learner.style.colour, "width": 2, "dash": learner.style.dash},
                "marker": {"color": learner.style.colour, "symbol": learner.style.symbol, "size": 9},
                "customdata": [_runs_between(point) for point in points],
                "hovertemplate": f"%{{fullData.name}}<br>after %{{x:,.4~r}} {_unit(cost, learner)}: "
                f"{plain(learner.learning.metric)} %{{y:.3~r}}%{{customdata}}<extra></extra>",
                "meta": {"facets": learner.placed.facets, "end": plain(learner.label)},
            }
        )
    threshold = next((each.learning.threshold for each in learners if each.learning.threshold is not None), None)
    if threshold is not None:
        data.append(_threshold(threshold, max(max(_along(each, cost)) for each in learners)))
    axis = {"title": {"text": named}, "rangemode": "tozero", **TICK}
    return {"data": data, "layout": {"xaxis": axis, "yaxis": {"title": {"text": plain(metric.capitalize())}}}}


def _unit(cost: Cost, learner: LearnedCell) -> str:
    return "s" if cost == "seconds" else learner.placed.cell.unit


def _runs_between(point: CurvePoint) -> str:
    """The lowest and the highest run at a point of a curve, which is no interval."""
    if point.low is None or point.high is None:
        return ""
    return f", runs from {fmt.number(point.low)} to {fmt.number(point.high)}"


def _threshold(threshold: float, end: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "threshold",
        "x": [0, end],
        "y": [threshold, threshold],
        "line": {"color": NEUTRAL, "width": 1.5, "dash": "longdash"},
        "hoverinfo": "skip",
    }


def _points(learner: LearnedCell) -> Iterator[list[Entry]]:
    points = learner.learning.curve
    for at in [*range(0, len(points) - 1, THINNED), len(points) - 1]:
        path = learner.path(f"curve.{at}")
        yield [words(learner.label), *(_point(path, points[at], field) for field in CurvePoint.model_fields)]


def _point(path: str, point: CurvePoint, field: str) -> Entry:
    return datum(f"{path}.{field}", getattr(point, field))


def results(summary: Summary) -> list[Chart]:
    """How well each system had learned in the end."""
    made = []
    for number, work, learners in _each(summary):
        drawn, metric = _side_by_side(learners), _metric(learners)
        if not any(each.learning.final.value for each in drawn):
            continue
        title = _titled(work, "What was learned in the end,", drawn)
        finals = [(label(each.label), each.learning.final, each) for each in drawn]
        data: list[dict[str, Any]] = [
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "x": [final.value],
                "y": [name],
                "marker": {"color": each.style.colour},
                "hovertemplate": f"%{{y}}<br>{plain(each.learning.metric)} %{{x:.3~r}}"
                f"{hover_ends(final.low, final.high)}<extra></extra>",
                "meta": {"facets": each.placed.facets},
            }
            for name, final, each in finals
        ]
        for name, final, each in finals:
            ends = intervals([(name, final)], each.style, each.label, horizontal=True, facets=each.placed.facets)
            data += map(upon_bar, ends)
        axis = {"title": {"text": f"Final {plain(metric)}"}}
        made.append(
            Chart(
                title=title,
                panels=[
                    Panel(
                        id=f"final-{number}",
                        figure={"data": data, "layout": bar_layout([each.label for each in drawn], axis)},
                    )
                ],
                table=PageTable(
                    caption=work.titled("What was learned, on each number of GPUs"),
                    columns=[
                        "system",
                        work.gpus_title,
                        f"final {metric}",
                        f"mean over {work.unit}",
                        f"to {work.unit}",
                        f"against the baseline {summary.reference}, for the same {work.unit}",
                    ],
                    rows=[_result(each) for each in learners],
                    num_names=2,
                    facets=[each.placed.facets for each in learners],
                ),
                notes=[RESULTS.format(unit=work.unit)],
                facets=work.facets,
            )
        )
    return made


def _result(learner: LearnedCell) -> list[Entry]:
    learning = learner.learning
    return [
        words(learner.label),
        words(f"{learner.gpus:,}"),
        estimated(learner.path("final"), learning.final),
        estimated(learner.path("area"), learning.area),
        datum(learner.path("area_env_steps"), learning.area_env_steps),
        words(VERDICTS[learning.against_reference]),
    ]


def thresholds(summary: Summary) -> list[Chart]:
    """The cost of reaching the threshold, including runs that never did."""
    made = []
    for number, work, all_learners in _each(summary):
        learners = [each for each in all_learners if each.learning.to_threshold]
        if all(each.value is None for learner in learners for each in learner.learning.to_threshold):
            continue
        drawn = _side_by_side(learners)
        names = {cost: _named(cost, drawn) for cost in COSTS}
        goal = learners[0].learning.threshold
        title = _titled(work, f"To {_metric(drawn).partition(' ')[0]} {goal:g},", drawn)
        made.append(
            Chart(
                title=title,
                panels=[
                    Panel(
                        id=f"threshold-{cost.replace('_', '-')}-{number}",
                        figure=_to_threshold(drawn, cost),
                        title=f"{name} to the threshold",
                    )
                    for cost, name in names.items()
                    if cost in AXES
                ],
                table=PageTable(
                    caption=work.titled("Cost of getting to the threshold, on each number of GPUs"),
                    columns=[
                        "system",
                        work.gpus_title,
                        *(name.lower() for name in names.values()),
                        "never got there",
                        "runs",
                    ],
                    rows=[_threshold_row(each) for each in learners],
                    num_names=2,
                    facets=[each.placed.facets for each in learners],
                ),
                notes=[THRESHOLDS],
                facets=work.facets,
            )
        )
    return made


def _cost(learner: LearnedCell, cost: str) -> tuple[int, ToThreshold] | None:
    return next(((at, each) for at, each in enumerate(learner.learning.to_threshold) if each.cost == cost), None)


def _to_threshold(learners: Sequence[LearnedCell], cost: Cost) -> Figure:
    data: list[dict[str, Any]] = []
    for learner in learners:
        found = _cost(learner, cost)
        if found is None:
            continue
        median, name = found[1], label(learner.label)
        reached = median.value is not None
        marker = learner.style.marker("measured")
        if not reached:
            marker |= {"symbol": "triangle-right-open", "size": 12}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [median.value if reached else median.at_least],
                "y": [name],
                "marker": marker,
                "hovertemplate": f"%{{y}}<br>{'' if reached else 'more than '}%{{x:,.4~r}}"
                f"{hover_ends(median.low, median.high)} {_unit(cost, learner)}<extra></extra>",
                "meta": {"facets": learner.placed.facets},
            }
        )
        if median.value is not None:
            ends = Estimate(value=median.value, low=median.low, high=median.high)
            facets = learner.placed.facets
            data += intervals([(name, ends)], learner.style, learner.label, horizontal=True, facets=facets)
    axis = {"title": {"text": _named(cost, learners)}, "rangemode": "tozero", **TICK}
    return {"data": data, "layout": bar_layout([each.label for each in learners], axis)}


def _threshold_row(learner: LearnedCell) -> list[Entry]:
    entries = [words(learner.label), words(f"{learner.gpus:,}")]
    for cost in COSTS:
        found = _cost(learner, cost)
        entries.append(_median(learner, *found) if found else words(NONE))
    place = learner.path("to_threshold.0")
    first = learner.learning.to_threshold[0]
    return [
        *entries,
        datum(f"{place}.num_censored", first.num_censored, _count),
        datum(f"{place}.num_runs", first.num_runs, _count),
    ]


def _median(learner: LearnedCell, at: int, median: ToThreshold) -> Entry:
    path = learner.path(f"to_threshold.{at}")
    if median.value is None:
        return (Piece("more than "), *datum(f"{path}.at_least", median.at_least))
    value = datum(f"{path}.value", median.value)
    if median.low is None and median.high is None:
        return value
    ends = datum(f"{path}.low", median.low), datum(f"{path}.high", median.high)
    return (*value, Piece(" ["), *ends[0], Piece(", "), *ends[1], Piece("]"))


def _count(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}"
