"""How well the cells of one group learned, compared: the same work on the same number of GPUs.

Areas are over the env steps that every curve covers. A curve begins when 100 episodes of its run have ended; one that
begins later than the others would otherwise skip the steps on which it was worst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlbench.results.reading.untrusted import visible
from rlbench.results.records.store import StoredRun, Unreadable
from rlbench.results.statistics.intervals import LEVEL
from rlbench.results.statistics.learning_curves import (
    COSTS,
    METRICS,
    Cost,
    Curve,
    Reached,
    area_under,
    interquartile_mean,
    median_cost,
    reach,
    read_curve,
    read_spent,
    stratified_interval,
)
from rlbench.results.summary.document import CurvePoint, Estimate, Learning, ToThreshold, Verdict

NUM_POINTS = 60
"""Number of points of a curve in a summary."""
UNTIL = re.compile(r"\s*(success|return)\s*>=?\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*")
"""A limit of `rlbench run --until` that is a threshold on a learning curve."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedRun:
    """A run that finished or timed out, and what it learned."""

    finished: bool
    curve: Curve | None
    """None if fewer than 100 episodes ended."""
    spent: dict[Cost, float]
    """Total costs of a run without a curve; empty for one with a curve."""

    @classmethod
    def read(cls, run: StoredRun, metrics: Sequence[str]) -> LearnedRun:
        """Reads the curve, or the total costs, of a run. Raises ValueError for a damaged series."""
        curve = read_curve(run.path, run.record.cell.gpus, metrics)
        spent = read_spent(run.path, run.record.cell.gpus) if curve is None else {}
        return cls(finished=run.record.status == "finished", curve=curve, spent=spent)

    def reach(self, metric: str, threshold: float, cost: Cost) -> Reached:
        """The cost of reaching a threshold; a run without a curve of the metric counts as never having reached it."""
        if self.curve is None:
            return Reached(cost=self.spent[cost], censored=True)
        if self.curve.metric != metric:
            return Reached(cost=float(self.curve.along(cost)[-1]), censored=True)
        return reach(self.curve, threshold, cost)


def learning_of_intact(
    runs_of: Mapping[str, Sequence[StoredRun]], reference: str | None, threshold: float | None
) -> tuple[dict[str, Learning], list[Unreadable]]:
    """Like `learning_of_group`, without the runs whose curves cannot be read; returns these too."""
    try:
        return learning_of_group(runs_of, reference, threshold), []
    except ValueError:
        damaged = _damaged(run for runs in runs_of.values() for run in runs)
    paths = {each.path for each in damaged}
    intact = {cell: [run for run in runs if run.path not in paths] for cell, runs in runs_of.items()}
    return learning_of_group(intact, reference, threshold), damaged


def _damaged(runs: Iterable[StoredRun]) -> list[Unreadable]:
    """The runs whose curve cannot be read."""
    found = []
    for run in runs:
        try:
            read_curve(run.path, run.record.cell.gpus)
        except ValueError as problem:
            found.append(Unreadable(path=run.path, reason=visible(str(problem))))
    return found


def learning_of_group(
    runs_of: Mapping[str, Sequence[StoredRun]],
    reference: str | None,
    threshold: float | None,
) -> dict[str, Learning]:
    """How well each of some cells learned; cells without a learning curve are left out.

    Args:
        runs_of: runs by cell: finished ones, and timed-out ones, which count only for a threshold.
        reference: the cell with which the others are compared.
        threshold: threshold of the curves' metric; if None, the one in `--until` of the runs, and the curves are then
            of its metric, if there are such curves.
    """
    until = _until([run for runs in runs_of.values() for run in runs])
    metrics = METRICS if threshold is not None or until is None else (until[0], *METRICS)
    read = {cell: [LearnedRun.read(run, metrics) for run in runs] for cell, runs in runs_of.items()}
    metric = next((run.curve.metric for runs in read.values() for run in runs if run.curve is not None), None)
    curves = {
        cell: kept
        for cell, runs in read.items()
        if (
            kept := [run.curve for run in runs if run.finished and run.curve is not None and run.curve.metric == metric]
        )
    }
    if metric is None or not curves:
        return {}
    begin, limit = _in_common([curve for each in curves.values() for curve in each])
    areas = {
        cell: [area_under(curve, "env_steps", limit, begin=begin) for curve in each] for cell, each in curves.items()
    }
    if threshold is None and until is not None and until[0] == metric:
        threshold = until[1]
    return {
        cell: Learning(
            metric=metric,
            final=_final(each),
            finals=[float(curve.values[-1]) for curve in each],
            area=_mean(areas[cell]),
            area_env_steps=limit,
            threshold=threshold,
            to_threshold=[] if threshold is None else _to_threshold(read[cell], metric, threshold),
            curve=_points(each),
            against_reference=(
                None if reference is None or cell == reference else _against(areas[cell], areas.get(reference, []))
            ),
        )
        for cell, each in curves.items()
    }


def _in_common(curves: Sequence[Curve]) -> tuple[float, float]:
    """The range of env steps that all curves cover; the begin of a curve that begins after another ended is ignored."""
    limit = min(float(curve.env_steps[-1]) for curve in curves)
    begins = [float(curve.env_steps[0]) for curve in curves]
    return max((begin for begin in begins if begin < limit), default=limit), limit


def _until(runs: Sequence[StoredRun]) -> tuple[str, float] | None:
    """The metric and the threshold of `--until` in the runs of a group, if it is one of a learning curve."""
    for run in runs:
        limits = run.record.configuration.get("limits")
        until = limits.get("until") if isinstance(limits, dict) else None
        match = UNTIL.fullmatch(until) if isinstance(until, str) else None
        if match:
            return match[1], float(match[2])
    return None


def _final(curves: Sequence[Curve]) -> Estimate:
    scores = [np.array([curve.values[-1] for curve in curves])]
    ends = stratified_interval(scores)
    value = float(interquartile_mean(scores))
    if ends is None:
        return Estimate(value=value)
    return Estimate(value=value, low=ends[0], high=ends[1], units="seeds", num_units=len(curves))


def _known(areas: Sequence[float | None]) -> list[float]:
    return [area for area in areas if area is not None]


def _mean(areas: Sequence[float | None]) -> Estimate | None:
    """The mean over runs, with Student's t interval."""
    from scipy import stats

    known = _known(areas)
    if not known:
        return None
    mean, error = float(np.mean(known)), float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else 0.0
    if not error:
        return Estimate(value=mean)
    half = error * float(stats.t.isf((1 - LEVEL) / 2, len(known) - 1))
    return Estimate(value=mean, low=mean - half, high=mean + half, units="seeds", num_units=len(known))


def _against(ours: Sequence[float | None], theirs: Sequence[float | None]) -> Verdict:
    """Whether our areas are below theirs, beyond Welch's interval of the difference of the means.

    With few runs against many, Welch's degrees of freedom are too many when the few happen to lie close together. So
    they are bounded by those of two sides with as few runs. By simulation 1.2 to 3.5 % of learners that are equal in
    the mean are called worse; the nominal level is 2.5 %.
    """
    from scipy import stats

    a, b = _known(ours), _known(theirs)
    fewest = min(len(a), len(b))
    if fewest < 2 or (np.ptp(a) == 0 and np.ptp(b) == 0):
        return "unknown"
    of_a, of_b = (float(np.var(areas, ddof=1)) / len(areas) for areas in (a, b))
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    most = stats.t.isf((1 - LEVEL) / 2, min(freedom, 2 * (fewest - 1))) * np.sqrt(of_a + of_b)
    return "worse" if np.mean(b) - np.mean(a) > most else "not worse"


def _to_threshold(runs: Sequence[LearnedRun], metric: str, threshold: float) -> list[ToThreshold]:
    found = []
    for cost in COSTS:
        median = median_cost([run.reach(metric, threshold, cost) for run in runs])
        found.append(
            ToThreshold(
                cost=cost,
                value=median.value,
                low=median.low,
                high=median.high,
                at_least=median.at_least,
                num_runs=median.num_runs,
                num_censored=median.num_censored,
            )
        )
    return found


def _points(curves: Sequence[Curve]) -> list[CurvePoint]:
    """The mean of the curves over the env steps that all cover, evenly spaced; no points if there are no such steps."""
    begin, end = max(c.env_steps[0] for c in curves), min(c.env_steps[-1] for c in curves)
    if begin > end:
        return []
    axis = np.unique(np.linspace(begin, end, NUM_POINTS))
    values = np.array([np.interp(axis, curve.env_steps, curve.values) for curve in curves])
    seconds, gpu_seconds = (
        np.mean([np.interp(axis, curve.env_steps, curve.along(cost)) for curve in curves], axis=0)
        for cost in ("seconds", "gpu_seconds")
    )
    several = len(curves) > 1
    return [
        CurvePoint(
            env_steps=float(axis[k]),
            seconds=float(seconds[k]),
            gpu_seconds=float(gpu_seconds[k]),
            value=float(values[:, k].mean()),
            low=float(values[:, k].min()) if several else None,
            high=float(values[:, k].max()) if several else None,
        )
        for k in range(len(axis))
    ]
