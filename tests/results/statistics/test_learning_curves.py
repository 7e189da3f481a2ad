from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import stats

from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.statistics.learning_curves import (
    COSTS,
    Curve,
    Median,
    Reached,
    area_under,
    interquartile_mean,
    median_cost,
    performance_profile,
    probability_of_improvement,
    reach,
    read_curve,
    stratified_interval,
)
from tests.lanes import sampled

NUM_EXPERIMENTS = 2000
WITH_6_MP = [6, 6, 6, 7, 10, 13, 16, 22, 23]
WITH_6_MP_CENSORED = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
"""Weeks in remission, Freireich et al. (Blood 21, 1963), the textbooks' example of Kaplan and Meier's estimate."""


def make_curve(values: Sequence[float], env_steps: Sequence[float] | None = None) -> Curve:
    """A curve of points at 100, 200, ... env steps, 10 of them a second, on 2 GPUs."""
    steps = np.array(env_steps or [100 * (point + 1) for point in range(len(values))], np.float64)
    return Curve(
        metric="success",
        values=np.array(values, np.float64),
        env_steps=steps,
        seconds=steps / 10,
        gpu_seconds=steps / 5,
    )


def all_reached(costs: Sequence[float], censored: Sequence[float] = ()) -> list[Reached]:
    """Runs that got there at some costs, and runs that spent others without getting there."""
    done = [Reached(cost=cost, censored=False) for cost in costs]
    return done + [Reached(cost=cost, censored=True) for cost in censored]


Row = dict[str, Any]


def write(folder: Path, rows: Sequence[Row]) -> Path:
    """The folder of a run with that series; what a row lacks is null."""
    folder.mkdir(exist_ok=True)
    names = dict.fromkeys(name for row in rows for name in row)
    parquet.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), folder / SERIES_FILE)
    return folder


def series(columns: Mapping[str, Sequence[float | None]], num_ranks: int = 3, num_iterations: int = 6) -> list[Row]:
    """A series as ranks in step write it: in the order of ranks, which end an iteration a few milliseconds apart.

    Each learns 64 env steps in each iteration of 2 s; `columns` have a value for each iteration, the same for all.
    """
    return [
        {
            "rank": rank,
            "iteration": iteration,
            "begin_s": 2.0 * iteration,
            "end_s": 2.0 * (iteration + 1) + 0.001 * rank,
            "learned": 64,
            "loss": 0.1,
            **{name: values[iteration] for name, values in columns.items()},
        }
        for rank in range(num_ranks)
        for iteration in range(num_iterations)
    ]


def together(rows: Sequence[Row]) -> list[Row]:
    """The same with ranks that end each iteration at one moment."""
    return [row | {"end_s": 2.0 * (row["iteration"] + 1)} for row in rows]


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_curve_of_several_ranks(tmp_path: Path, unknown: float | None) -> None:
    """Costs ascend and are those of all ranks: env steps summed, seconds times GPUs; before 100 episodes is nothing."""
    curve = read_curve(write(tmp_path, series({"success": [unknown, unknown, 0.1, 0.3, 0.2, 0.6]})), gpus=3)
    assert curve is not None
    assert curve.metric == "success"
    ends = curve.values[2::3], curve.env_steps[2::3], curve.seconds[2::3]  # of the last rank in each iteration
    assert ends[0] == pytest.approx([0.1, 0.3, 0.2, 0.6])
    assert ends[1] == pytest.approx([576, 768, 960, 1152])  # 3 ranks x 64 env steps x 3 iterations, and so on
    assert ends[2] == pytest.approx([6.002, 8.002, 10.002, 12.002])
    assert curve.gpu_seconds == pytest.approx(3 * curve.seconds)
    for cost in COSTS:
        assert (np.diff(curve.along(cost)) > 0).all()


def test_ranks_that_end_together_are_one_point(tmp_path: Path) -> None:
    """Of rows that end at the same moment one is left: with the env steps of all."""
    curve = read_curve(write(tmp_path, together(series({"success": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}))), gpus=3)
    assert curve is not None
    assert curve.seconds == pytest.approx([2, 4, 6, 8, 10, 12])
    assert curve.env_steps == pytest.approx([192, 384, 576, 768, 960, 1152])
    assert curve.values == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])


def test_rank_without_episodes_leaves_the_point_of_the_others(tmp_path: Path) -> None:
    """Where ranks know episodes of their own, one that ends together with the others and knows none hides no point."""
    rows = together(series({"success": [0.5, 0.75]}, num_ranks=2, num_iterations=2))
    curve = read_curve(write(tmp_path, [row | ({"success": None} if row["rank"] else {}) for row in rows]), gpus=2)
    assert curve is not None
    assert curve.values == pytest.approx([0.5, 0.75])


def test_success_before_return(tmp_path: Path) -> None:
    """A curve shows success where there is any, else the return."""
    returns = {"return": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    curve = read_curve(write(tmp_path / "both", series(returns | {"success": [0.5] * 6})), gpus=1)
    assert curve is not None
    assert curve.metric == "success"
    for name, rows in (("one", series(returns)), ("empty", series(returns | {"success": [math.nan] * 6}))):
        curve = read_curve(write(tmp_path / name, rows), gpus=1)
        assert curve is not None
        assert curve.metric == "return"


def test_no_curve(tmp_path: Path) -> None:
    """Without a series, without a metric, and without 100 episodes there is none."""
    assert read_curve(tmp_path, gpus=1) is None
    assert read_curve(write(tmp_path, series({})), gpus=1) is None
    assert read_curve(write(tmp_path, series({"success": [math.nan] * 6})), gpus=1) is None
    assert read_curve(write(tmp_path, series({"success": [None] * 6})), gpus=1) is None


@pytest.mark.parametrize("damage", ["cut", "no env steps", "no ends", "text"])
def test_damaged_series(tmp_path: Path, damage: str) -> None:
    """A file that was cut off, or lacks a column, or holds text, is named with what to do about it."""
    lacking = {"no env steps": "learned", "no ends": "end_s"}.get(damage)
    rows = [{name: value for name, value in row.items() if name != lacking} for row in series({"success": [0.5] * 6})]
    path = write(tmp_path, [row | {"success": "half"} for row in rows] if damage == "text" else rows) / SERIES_FILE
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"series\.parquet: cannot be read \(.+\); move its run folder"):
        read_curve(tmp_path, gpus=1)


def test_area_by_hand() -> None:
    """Trapezoids over unequal distances: (50 + 300 x 1.5) / 400 from 100 to 500 env steps."""
    curve = make_curve([0, 1, 2], env_steps=[100, 200, 500])
    assert area_under(curve, "env_steps", 500) == pytest.approx((50 + 450) / 400)
    assert area_under(curve, "gpu_seconds", 100) == pytest.approx((50 + 450) / 400)


def test_area_that_ends_between_points() -> None:
    """The curve is cut where the limit is: to 350 env steps, at a height of 1.5, it is (50 + 150 x 1.25) / 250."""
    curve = make_curve([0, 1, 2], env_steps=[100, 200, 500])
    assert area_under(curve, "env_steps", 350) == pytest.approx((50 + 187.5) / 250)


def test_area_that_begins_in_the_midst() -> None:
    """What is before `begin` does not count: from 150, at a height of 0.5, to 500 it is (50 x 0.75 + 450) / 350."""
    curve = make_curve([0, 1, 2], env_steps=[100, 200, 500])
    assert area_under(curve, "env_steps", 500, begin=150) == pytest.approx((37.5 + 450) / 350)
    assert area_under(curve, "env_steps", 500, begin=200) == pytest.approx(1.5)
    assert area_under(curve, "env_steps", 400, begin=300) == pytest.approx(1.5)


@pytest.mark.parametrize(("limit", "begin"), [(501, None), (100, None), (50, None), (500, 99), (200, 200), (200, 300)])
def test_area_of_what_is_not_known(limit: float, begin: float | None) -> None:
    """A curve has no area before its first point, after its last one, or over no distance; nor has a point."""
    assert area_under(make_curve([1]), "env_steps", 100) is None
    assert area_under(make_curve([0, 1, 2], env_steps=[100, 200, 500]), "env_steps", limit, begin=begin) is None


def test_reach() -> None:
    """The first point at the threshold or above counts, whatever comes after; a run without one is censored."""
    curve = make_curve([0.1, 0.6, 0.4, 0.9])
    assert reach(curve, 0.6, "env_steps") == Reached(cost=200, censored=False)
    assert reach(curve, 0.61, "seconds") == Reached(cost=40, censored=False)
    assert reach(curve, 0.95, "gpu_seconds") == Reached(cost=80, censored=True)
    assert reach(curve, 0.95, "gpu_seconds") == Reached(cost=80, censored=True)
    assert reach(curve, 0.9, "gpu_seconds") == Reached(cost=80, censored=False)


def product_limit(reached: Sequence[Reached]) -> list[tuple[float, float, float, float]]:
    """Kaplan and Meier's table, literally: cost, share still on their way, and its ends on the log-log scale."""
    rows, alive, greenwood = [], 1.0, 0.0
    for cost in sorted({each.cost for each in reached if not each.censored}):
        at_risk = sum(each.cost >= cost for each in reached)
        events = sum(each.cost == cost and not each.censored for each in reached)
        alive *= 1 - events / at_risk
        if events == at_risk:
            rows.append((cost, 0.0, math.nan, math.nan))
            break
        greenwood += events / (at_risk * (at_risk - events))
        spread = 1.959964 * math.sqrt(greenwood) / math.log(alive)  # below 0
        rows.append((cost, alive, alive ** math.exp(-spread), alive ** math.exp(spread)))
    return rows


def first_half(rows: Sequence[tuple[float, ...]], column: int) -> float | None:
    """The first cost at which a column of the table is at most a half."""
    return next((row[0] for row in rows if row[column] <= 0.5 + 1e-9), None)


def test_median_of_a_textbook() -> None:
    """The shares are those of Klein and Moeschberger's table 4.1: 0.538 after week 22, 0.448 after 23, the median."""
    reached = all_reached(WITH_6_MP, WITH_6_MP_CENSORED)
    table = product_limit(reached)
    assert [row[1] for row in table] == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=5e-4)
    median = median_cost(reached)
    assert (median.value, median.low, median.high) == (23, 13, None)
    assert (median.num_runs, median.num_censored, median.at_least) == (21, 12, None)


def test_median_is_that_of_the_product_limit() -> None:
    """Of any runs, ties and all, median and interval are those of the table worked out literally."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        num = int(rng.integers(4, 12))
        reached = [
            Reached(cost=float(cost), censored=bool(censored))
            for cost, censored in zip(rng.integers(1, 15, num), rng.random(num) < 0.4, strict=True)
        ]
        table, median = product_limit(reached), median_cost(reached)
        assert (median.value, median.low, median.high) == tuple(first_half(table, column) for column in (1, 2, 3))
        assert median.num_censored == sum(each.censored for each in reached)


@pytest.mark.parametrize("num", range(2, 40, 2))
def test_half_is_a_half(num: int) -> None:
    """Where the share falls to exactly a half, rounding does not put the median off to the next run that got there."""
    half = num // 2
    assert median_cost(all_reached(range(1, num), [num])).value == half
    assert median_cost(all_reached(range(1, half + 1), [num] * half)).value == half


def test_median_without_censoring() -> None:
    """Where all got there it is the middle one, of an even number the lower of two."""
    assert median_cost(all_reached([30, 10, 20])).value == 20
    assert median_cost(all_reached([30, 10, 20, 40])).value == 20


def test_all_censored() -> None:
    """Where none got there, nothing is known but that the median is not below what they spent."""
    open_median = Median(value=None, low=None, high=None, num_censored=3, num_runs=3, at_least=200)
    assert median_cost(all_reached([], [100, 300, 200])) == open_median


def test_more_than_half_censored() -> None:
    """Where fewer than half got there the median is not known, and not below the middle of all that was spent."""
    median = median_cost(all_reached([10], [50, 60, 70]))
    assert (median.value, median.high, median.at_least) == (None, None, 50)


@pytest.mark.parametrize("num_runs", [2, 3])
def test_median_of_few_runs_has_no_interval(num_runs: int) -> None:
    """Of so few all are above the median too often for the least of them to be an end."""
    median = median_cost(all_reached(range(1, num_runs + 1)))
    assert (median.low, median.high) == (None, None)
    assert median_cost(all_reached([1, 2, 3, 4])).low == 1


def test_one_run() -> None:
    """One run that got there has its own cost as the median, and no interval; one that did not has none."""
    assert median_cost(all_reached([10])) == Median(
        value=10, low=None, high=None, num_censored=0, num_runs=1, at_least=None
    )
    assert median_cost(all_reached([], [10])) == Median(
        value=None, low=None, high=None, num_censored=1, num_runs=1, at_least=10
    )


def test_censoring_never_lowers_the_median() -> None:
    """Neither a further run that did not get there nor one that stopped where it had got there lowers the median."""

    def known(reached: Sequence[Reached]) -> float:
        return math.inf if (value := median_cost(reached).value) is None else value

    rng = np.random.default_rng(1)
    for _ in range(200):
        costs = rng.integers(1, 20, int(rng.integers(1, 9))).astype(float)
        reached = [Reached(cost=cost, censored=bool(rng.random() < 0.3)) for cost in costs.tolist()]
        before = known(reached)
        assert known([*reached, Reached(cost=float(rng.integers(0, 25)), censored=True)]) >= before
        for place in range(len(reached)):
            stopped = [*reached]
            stopped[place] = Reached(cost=reached[place].cost, censored=True)
            assert known(stopped) >= before


def test_at_least_is_below_the_median() -> None:
    """What is said of an unknown median holds for the median of the costs as they would have been without censoring."""
    rng = np.random.default_rng(2)
    num_unknown = 0
    for _ in range(300):
        costs, limits = rng.exponential(1, 5), rng.exponential(0.8, 5)
        median = median_cost(
            [Reached(cost=min(cost, limit), censored=limit < cost) for cost, limit in zip(costs, limits, strict=True)]
        )
        assert (median.at_least is None) == (median.value is not None)
        num_unknown += median.value is None
        assert median.at_least is None or median.at_least <= np.median(costs)
    assert num_unknown > 50


@pytest.mark.parametrize("num_runs", sampled([5, 10, 20, 40], every=3))
def test_coverage_of_the_median(num_runs: int) -> None:
    """The interval holds the median in 93 to 97 % of experiments: exponential costs, 30 % of them censored."""
    rng = np.random.default_rng(num_runs)
    hits = 0
    for _ in range(NUM_EXPERIMENTS):
        costs, limits = rng.exponential(1, num_runs), rng.exponential(7 / 3, num_runs)
        censored = limits < costs
        median = median_cost(all_reached(costs[~censored].tolist(), limits[censored].tolist()))
        hits += (median.low or 0) <= math.log(2) <= (median.high or math.inf)
    assert 0.93 <= hits / NUM_EXPERIMENTS <= 0.97


def test_interquartile_mean_by_hand() -> None:
    """The middle half of all runs of all tasks counts; of 5 runs the middle 3."""
    assert interquartile_mean([np.array([8.0, 1, 2, 7]), np.array([3.0, 100, 5, 6])]) == pytest.approx(
        (3 + 5 + 6 + 7) / 4
    )
    assert interquartile_mean([np.array([9.0, 1, 2, 4, 100])]) == pytest.approx(5)
    assert interquartile_mean([np.array([[9.0, 1, 2, 4, 100], [1, 1, 1, 1, 1]])]) == pytest.approx([5, 1])


@pytest.mark.parametrize("sizes", sampled([((3,),), ((5,),), ((10,),), ((5, 5, 5),), ((10, 5),)], every=4))
def test_coverage_of_the_interquartile_mean(sizes: tuple[int, ...]) -> None:
    """The interval holds the value in 93 to 97 % of experiments, with few runs, and of tasks that spread unlike."""
    rng = np.random.default_rng(len(sizes))
    hits = 0
    for _ in range(NUM_EXPERIMENTS):
        scores = [0.5 + 0.1 * (task + 1) * rng.standard_normal(num) for task, num in enumerate(sizes)]
        ends = stratified_interval(scores, num_draws=400)
        assert ends is not None
        hits += ends[0] <= 0.5 <= ends[1]
    assert 0.93 <= hits / NUM_EXPERIMENTS <= 0.97


def test_interval_of_three_runs_is_students() -> None:
    """Nothing is cut off 3 runs: the interval is that of their mean."""
    runs = np.array([0.2, 0.5, 0.4])
    ends = stratified_interval([runs], num_draws=200_000)
    assert ends == pytest.approx(stats.ttest_1samp(runs, 0).confidence_interval(), rel=0.02)


def test_runs_are_drawn_within_their_tasks() -> None:
    """Tasks that differ, and whose runs do not, leave nothing open."""
    scores = [np.full(4, float(task)) for task in range(3)]
    assert stratified_interval(scores) == pytest.approx((1, 1))


def test_stratified_interval_of_few_runs() -> None:
    """A task with 2 runs leaves no interval."""
    scores = [np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.2])]
    assert stratified_interval(scores) is None


def test_probability_of_improvement_is_a_count() -> None:
    """It is the share of pairs of runs in which ours is better, ties half, mean over tasks whatever their numbers."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        ours = [rng.integers(0, 6, rng.integers(1, 7)).astype(float) for _ in range(3)]
        theirs = [rng.integers(0, 6, rng.integers(1, 7)).astype(float) for _ in range(3)]
        shares = []
        for a, b in zip(ours, theirs, strict=True):
            points = [1.0 if x > y else 0.5 if x == y else 0.0 for x, y in itertools.product(a, b)]
            shares.append(sum(points) / len(points))
        assert probability_of_improvement(ours, theirs) == pytest.approx(sum(shares) / 3)


def test_probability_of_improvement_of_equals() -> None:
    """Runs that are all alike improve in half of the cases."""
    assert probability_of_improvement([np.ones(3)], [np.ones(4)]) == 0.5


def test_performance_profile_by_hand() -> None:
    """The share of runs above each threshold, strictly; tasks count the same whatever their number of runs."""
    profile = performance_profile([np.array([1.0, 2, 3, 4]), np.array([2.0, 3])], np.array([0.0, 1, 2, 3.5, 4]))
    assert profile == pytest.approx([1, (3 / 4 + 1) / 2, (2 / 4 + 1 / 2) / 2, (1 / 4 + 0) / 2, 0])
