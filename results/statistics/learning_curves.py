"""How well and how fast runs learn: curves, thresholds with censoring, and statistics over seeds.

The statistics over runs are those of Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical
Precipice (NeurIPS 2021), section 4: interquartile mean with a bootstrap stratified by task, probability of improvement,
performance profiles. Costs of getting to a threshold that some runs never reach are estimated by the product limit of
Kaplan and Meier (scipy.stats.ecdf). Symbols: K points of a curve, M tasks, R runs of a task, D draws of a bootstrap.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rlbench.results.reading.tables import LARGEST, SERIES_ROWS, check_numbers, read_columns
from rlbench.results.records.parts import SERIES_FILE, read_parts
from rlbench.results.statistics.intervals import LEVEL, half_width

Floats = NDArray[np.float64]
Cost = Literal["env_steps", "seconds", "gpu_seconds"]
"""The unit in which the cost of learning is counted."""
COSTS: tuple[Cost, ...] = ("env_steps", "seconds", "gpu_seconds")
COSTED = {"end_s": "float64", "learned": "int64"}
"""Columns of a series from which costs are computed, with their types."""
METRICS = ("success", "return")
"""Columns of a series that a learning curve can show, the preferred one first: means over the last 100 episodes."""
NUM_DRAWS = 2000
LEAST_RUNS = 3
"""Minimum runs of a task for an interval: the interquartile mean of two is their mean, and two show little spread."""
LEAST_FOR_MEDIAN = 4
"""Minimum runs for the interval of a median: in 1 of 8 experiments all of 3 runs lie above it."""
LEAST_TRIMMED = 4
"""The interquartile mean cuts off no run where there are fewer: a quarter of them is less than one."""
ROUNDING = 1e-9
"""Largest rounding error of a product of shares that should be one half."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A metric over the course of a run; arrays are [K], costs ascend."""

    metric: str
    values: Floats
    env_steps: Floats
    """Fresh env steps learned up to each point, over all ranks."""
    seconds: Floats
    """Time on the run's clock."""
    gpu_seconds: Floats

    def along(self, cost: Cost) -> Floats:
        """The costs of the points, in a unit."""
        axis: Floats = getattr(self, cost)
        return axis


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """The cost at which a run reached a threshold."""

    cost: float
    censored: bool
    """Whether the run never reached it: `cost` is then all that it spent."""


def read_curve(run_folder: Path, gpus: int, metrics: Sequence[str] = METRICS) -> Curve | None:
    """Reads the curve of the first of `metrics` that has values in a run's series.

    None if the run has no series, or if no metric has values, because fewer than 100 episodes ended. Raises ValueError
    for a damaged series.
    """
    path = run_folder / SERIES_FILE
    if not path.exists():
        return None
    try:
        table = read_columns(path, COSTED, dict.fromkeys(metrics, "float64"), most_rows=SERIES_ROWS)
        check_numbers(table.select(list(COSTED)))
    except ValueError as problem:
        raise ValueError(f"{path}: cannot be read ({problem}); move its run folder elsewhere or delete it") from None
    rows = {
        name: column.to_numpy().astype(np.float64)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    order = np.argsort(rows["end_s"], kind="stable")
    rows = {name: values[order] for name, values in rows.items()}
    seconds, env_steps = rows["end_s"], rows["learned"].cumsum()
    columns = {name: rows[name] for name in dict.fromkeys(metrics) if name in rows}
    if any((np.abs(values[np.isfinite(values)]) > LARGEST).any() for values in columns.values()):
        raise ValueError(f"{path}: cannot be read (a metric is beyond {LARGEST:,}); move its run folder elsewhere")
    metric = next((name for name, values in columns.items() if np.isfinite(values).any()), None)
    if metric is None:
        return None
    known = np.isfinite(columns[metric])
    env_steps, seconds, values = env_steps[known], seconds[known], columns[metric][known]
    last = np.append(seconds[1:] > seconds[:-1], True)  # of rows with the same end, the last counts all env steps
    return Curve(
        metric=metric,
        values=values[last],
        env_steps=env_steps[last],
        seconds=seconds[last],
        gpu_seconds=gpus * seconds[last],
    )


def area_under(curve: Curve, cost: Cost, limit: float, *, begin: float | None = None) -> float | None:
    """The mean of a curve from `begin` to `limit`, by trapezoids; None if the curve does not cover that range.

    `begin` is the curve's begin by default; costs before it, when too few episodes had ended, are left out.
    """
    axis, values = curve.along(cost), curve.values
    begin = float(axis[0]) if begin is None else begin
    if not axis[0] <= begin < limit <= axis[-1]:
        return None
    inside = (begin < axis) & (axis < limit)
    costs = np.concatenate([[begin], axis[inside], [limit]])
    heights = np.concatenate([[_at(begin, curve, axis)], values[inside], [_at(limit, curve, axis)]])
    return float(np.trapezoid(heights, costs) / (limit - begin))


def _at(cost: float, curve: Curve, axis: Floats) -> float:
    return float(np.interp(cost, axis, curve.values))


def read_spent(run_folder: Path, gpus: int) -> dict[Cost, float]:
    """The total cost of a run, by its series; 0 if it ended before its first iteration did."""
    parts = read_parts(run_folder)
    seconds = parts[-1].end_s if parts else 0.0
    return {"env_steps": float(sum(part.learned for part in parts)), "seconds": seconds, "gpu_seconds": gpus * seconds}


def reach(curve: Curve, threshold: float, cost: Cost) -> Reached:
    """The cost at which the metric first was at least the threshold; censored if it never was."""
    axis = curve.along(cost)
    there = np.flatnonzero(curve.values >= threshold)
    if len(there):
        return Reached(cost=float(axis[there[0]]), censored=False)
    return Reached(cost=float(axis[-1]), censored=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Median:
    """A median cost of reaching a threshold, by Kaplan and Meier."""

    value: float | None
    """None where too many runs never reached the threshold."""
    low: float | None
    high: float | None
    """Ends of the 95 % interval (Brookmeyer and Crowley, on the log-log scale); None where it is open.

    Fewer than `LEAST_FOR_MEDIAN` runs have no interval. By simulation it covers 93 to 96 % with 4 to 20 runs.
    """
    num_censored: int
    num_runs: int
    at_least: float | None
    """Lower bound of an unknown median: the median of what all runs spent, whether they got there or not."""


def median_cost(reached: Sequence[Reached]) -> Median:
    """The median cost of reaching a threshold, over at least one run; some may never have reached it.

    It is the first cost at which at most half of the runs have not yet reached the threshold (Klein and Moeschberger,
    Survival Analysis, 2nd edition, section 4.5): of an even number of runs that all did, the lower of the middle two.
    """
    from scipy import stats

    done = [each.cost for each in reached if not each.censored]
    open_ended = [each.cost for each in reached if each.censored]
    value = low = high = None
    if done:
        survival = stats.ecdf(stats.CensoredData(uncensored=done, right=open_ended)).sf
        with warnings.catch_warnings():
            # Where all runs, or none, are still on their way, the formula has no ends: they stay open.
            warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
            ends = survival.confidence_interval(LEVEL, method="log-log")
        value, *both = (_half_of(each.quantiles, each.probabilities) for each in (survival, ends.low, ends.high))
        low, high = both if len(reached) >= LEAST_FOR_MEDIAN else (None, None)
    return Median(
        value=value,
        low=low,
        high=high,
        num_censored=len(open_ended),
        num_runs=len(reached),
        at_least=None if value is not None else _lower_middle([each.cost for each in reached]),
    )


def _lower_middle(costs: Sequence[float]) -> float:
    return float(np.quantile(costs, 0.5, method="lower"))


def _half_of(costs: Floats, alive: Floats) -> float | None:
    """The first cost at which the share still on their way is at most a half; None if there is none."""
    below = np.flatnonzero(np.nan_to_num(alive, nan=1.0) <= 0.5 + ROUNDING)
    return float(costs[below[0]]) if len(below) else None


def interquartile_mean(scores: Sequence[Floats]) -> Floats:
    """The mean of the middle half of all runs of all tasks, [...]; `scores` are M arrays [..., R].

    If their number is no multiple of 4, the quarter cut off at either end is rounded down: of 5 runs, 3 count.
    """
    from scipy import stats

    middle: Floats = stats.trim_mean(np.concatenate(scores, axis=-1), 0.25, axis=-1)
    return middle


def stratified_interval(scores: Sequence[Floats], *, num_draws: int = NUM_DRAWS) -> tuple[float, float] | None:
    """The 95 % interval of the interquartile mean of M arrays [R], by a bootstrap that draws runs within each task.

    Percentiles of the draws, as in Agarwal et al., are too narrow with few runs (3 runs of one task: 74 % coverage). So
    the interval uses the draws' spread and Student's t, as in `results.statistics.intervals`. Draws within M tasks show
    only (N - M) / (N - 1) of the variance of N runs, or (N - M) / N where nothing is cut off; the spread is corrected
    for that. By simulation the interval covers 93 to 97 %.

    Args:
        scores: scores of the runs, an array for each task.
        num_draws: how often runs are drawn.

    Returns:
        The ends; None if a task has fewer than `LEAST_RUNS` runs.
    """
    if min(len(runs) for runs in scores) < LEAST_RUNS:
        return None
    generator = np.random.default_rng(0)  # the same scores have the same interval
    draws = interquartile_mean([runs[generator.integers(len(runs), size=(num_draws, len(runs)))] for runs in scores])
    num_runs = sum(len(runs) for runs in scores)
    freedom = num_runs - len(scores)
    shown = freedom / (num_runs if num_runs < LEAST_TRIMMED else num_runs - 1)
    half = half_width(float(draws.std()) / math.sqrt(shown), freedom)
    center = float(interquartile_mean(scores))
    return center - half, center + half


def probability_of_improvement(ours: Sequence[Floats], theirs: Sequence[Floats]) -> float:
    """The probability that a run of ours beats one of theirs on the same task, mean over M tasks; ties count half."""
    from scipy import stats

    each = [
        stats.mannwhitneyu(a, b, method="asymptotic").statistic / (len(a) * len(b))
        for a, b in zip(ours, theirs, strict=True)
    ]
    return float(np.mean(each))


def performance_profile(scores: Sequence[Floats], thresholds: Floats) -> Floats:
    """The share of all runs whose score is above each threshold, mean over M tasks, [thresholds]."""
    shares: Floats = np.mean([(runs[:, None] > thresholds).mean(0) for runs in scores], axis=0)
    return shares
