from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.store import StoredRun
from rlbench.results.summary.document import Learning
from rlbench.results.summary.learned_cells import _against, learning_of_group
from tests.results.made_records import make_record

NUM_EXPERIMENTS = 2000
Group = dict[str, list[StoredRun]]


def make_run(
    folder: Path,
    values: Sequence[float] | None,
    *,
    first: int = 0,
    until: object = None,
    gpus: int = 2,
    metric: str = "success",
    timed_out: bool = False,
) -> StoredRun:
    """A finished run of one rank, which learned 100 env steps in each second.

    Args:
        folder: of all runs.
        values: of its metric, an iteration each; None without a column of it.
        first: so many iterations before them had no metric yet.
        until: limit of its configuration.
        gpus: that it is said to have had.
        metric: the column.
        timed_out: whether it was ended.
    """
    run_folder = folder / f"run-{len(list(folder.iterdir()))}"
    run_folder.mkdir()
    num = first + len(values or [1, 1, 1])
    frame = pd.DataFrame(
        {"rank": 0, "iteration": range(num), "begin_s": np.arange(num), "end_s": 1.0 + np.arange(num), "learned": 100}
    )
    if values is not None:
        frame[metric] = [np.nan] * first + list(values)
    frame.to_parquet(run_folder / SERIES_FILE)
    ended: dict[str, Any] = {"status": "timed-out", "reason": "not over after 600 s"} if timed_out else {}
    record = make_record(gpus=gpus, configuration={"limits": {"until": until, "seconds": None}}, **ended)
    return StoredRun(path=run_folder, record=record)


def learn(group: Group, *, threshold: float | None = None) -> dict[str, Learning]:
    """What is said of a group, with the cell `ours` held against the cell `base`."""
    return learning_of_group(group, "base", threshold)


def rising(height: float, num: int = 11) -> list[float]:
    """A straight line from 0 to a height."""
    return [height * point / (num - 1) for point in range(num)]


def test_clearly_worse(tmp_path: Path) -> None:
    """A cell whose three seeds all learn half as much is worse than the reference; the other way round it is not."""
    good = [make_run(tmp_path, rising(height)) for height in (0.9, 0.92, 0.88)]
    bad = [make_run(tmp_path, rising(height)) for height in (0.45, 0.46, 0.44)]
    found = learn({"base": good, "ours": bad})
    assert found["ours"].against_reference == "worse"
    assert found["base"].against_reference is None
    assert learn({"base": bad, "ours": good})["ours"].against_reference == "not worse"


def test_alike_is_not_worse(tmp_path: Path) -> None:
    """A cell that differs by less than its seeds do is not worse."""
    base = [make_run(tmp_path, rising(height)) for height in (0.9, 0.7, 0.8)]
    ours = [make_run(tmp_path, rising(height)) for height in (0.65, 0.85, 0.8)]
    assert learn({"base": base, "ours": ours})["ours"].against_reference == "not worse"


@pytest.mark.parametrize(("num_ours", "num_base"), [(1, 3), (3, 1), (1, 1), (3, 0)])
def test_one_seed_is_unknown(tmp_path: Path, num_ours: int, num_base: int) -> None:
    """With one seed on either side, or a reference without curves, nothing is said, however much they differ."""
    group = {
        "base": [make_run(tmp_path, rising(0.9 + 0.01 * seed)) for seed in range(num_base)],
        "ours": [make_run(tmp_path, rising(0.1 + 0.01 * seed)) for seed in range(num_ours)],
    }
    assert learn(group)["ours"].against_reference == "unknown"


def test_without_a_reference(tmp_path: Path) -> None:
    """Where nothing is the reference, nothing is held against it."""
    group = {"ours": [make_run(tmp_path, rising(0.9)) for _ in range(2)]}
    assert learning_of_group(group, None, None)["ours"].against_reference is None


@pytest.mark.parametrize(("num_ours", "num_base", "spread"), [(3, 3, 1.0), (5, 5, 1.0), (5, 5, 0.3), (3, 10, 1.0)])
def test_level_of_worse(num_ours: int, num_base: int, spread: float) -> None:
    """Of learners that are equal in the mean, at most 3 % are said to be worse (the level is 2.5 %), but some are."""
    rng = np.random.default_rng(num_ours)
    verdicts = [
        _against(rng.normal(0.5, 0.05 * spread, num_ours).tolist(), rng.normal(0.5, 0.05, num_base).tolist())
        for _ in range(NUM_EXPERIMENTS)
    ]
    assert 0.01 <= verdicts.count("worse") / NUM_EXPERIMENTS <= 0.03


def test_verdict_is_that_of_welchs_interval() -> None:
    """With as many runs on both sides it is `worse` just where Welch's 95 % interval (scipy) lies below 0."""
    rng = np.random.default_rng(0)
    said = set()
    for _ in range(200):
        num = int(rng.integers(2, 6))
        a, b = rng.normal(0.4, 0.1, num), rng.normal(0.5, 0.03, num)
        below = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95).high < 0
        verdict = _against([*a.tolist(), None], b.tolist())
        assert verdict == ("worse" if below else "not worse")
        said.add(verdict)
    assert said == {"worse", "not worse"}


def test_few_runs_against_many() -> None:
    """Two runs that lie close together are not taken for ten: t is 3.8, for 2 degrees of freedom 4.3 are wanted."""
    few, many = [0.39, 0.4], [0.42, 0.46, 0.5, 0.54, 0.58, 0.42, 0.46, 0.5, 0.54, 0.58]
    assert stats.ttest_ind(few, [each - 0.03 for each in many], equal_var=False).pvalue < 0.01
    assert _against(few, [each - 0.03 for each in many]) == "not worse"
    assert _against(few, [each + 0.1 for each in many]) == "worse"


def test_runs_without_any_spread() -> None:
    """Runs that are all alike on both sides are held against no error: unknown; on one side, against the other's."""
    assert _against([0.1, 0.1], [0.9, 0.9]) == "unknown"
    assert _against([0.1, 0.1, 0.1], [0.9, 0.91, 0.92]) == "worse"
    assert _against([0.0, 0.0, 0.0], [0.9, 0.91, 0.92]) == "worse"
    assert _against([0.9, 0.91, 0.92], [0.1, 0.1, 0.1]) == "not worse"


def test_equal_curves_are_equal_wherever_they_begin(tmp_path: Path) -> None:
    """A cell whose metric is known later is not the better for it: areas are of the env steps that all curves have."""
    line = rising(1.0, 21)
    early = [make_run(tmp_path, [value + bump for value in line]) for bump in (0, 0.001, 0.002)]
    late = [make_run(tmp_path, [value + bump for value in line[10:]], first=10) for bump in (0, 0.001, 0.002)]
    found = learn({"base": late, "ours": early})
    for cell in ("base", "ours"):
        area = found[cell].area
        assert area is not None
        assert area.value == pytest.approx(0.751)  # of a line from 0.5 to 1
    assert found["ours"].against_reference == "not worse"


def test_area_has_students_interval(tmp_path: Path) -> None:
    """The area of a cell is the mean over its runs up to the env steps that all of the group have."""
    heights = (0.8, 0.9, 0.7)
    short = make_run(tmp_path, rising(0.5, 6))
    found = learn({"base": [short], "ours": [make_run(tmp_path, rising(height)) for height in heights]})
    area = found["ours"].area
    assert area is not None
    assert found["ours"].area_env_steps == 600
    areas = [height / 4 for height in heights]  # of a line from 0 to half of its height
    ends = stats.ttest_1samp(areas, 0).confidence_interval(0.95)
    assert (area.value, area.low, area.high) == pytest.approx((0.2, ends.low, ends.high))
    assert (area.units, area.num_units) == ("seeds", 3)
    lone = found["base"].area
    assert lone is not None
    assert lone.value == pytest.approx(0.25)
    assert (lone.low, lone.high, lone.units) == (None, None, None)


def test_run_that_begins_after_another_ended(tmp_path: Path) -> None:
    """A run without a step in common with the others has no area; the others keep theirs."""
    late = make_run(tmp_path, rising(0.9, 5), first=20)
    found = learn({"base": [make_run(tmp_path, rising(0.8)), late], "ours": [make_run(tmp_path, rising(0.4))]})
    base, ours = found["base"], found["ours"]
    assert base.area is not None
    assert ours.area is not None
    assert base.area.value == pytest.approx(0.4)
    assert base.area.num_units == 0
    assert ours.area.value == pytest.approx(0.2)
    assert base.curve == []


def test_curves_of_one_point(tmp_path: Path) -> None:
    """Runs that had ended 100 episodes only when they ended have no area, and a curve of one point."""
    found = learn({"base": [make_run(tmp_path, [0.3], first=9)], "ours": [make_run(tmp_path, [0.5], first=9)]})["ours"]
    assert found.area is None
    assert found.against_reference == "unknown"
    assert [(point.env_steps, point.value) for point in found.curve] == [(1000, 0.5)]


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("success>=0.5", 0.5),
        (" success >= 5e-1 ", 0.5),
        ("success>0.5", 0.5),
        ("return>=0.5", None),
        ("success<=0.5", None),
        ("length>=3", None),
        ("success>=half", None),
        ("success>=-", None),
        (0.5, None),
        (None, None),
    ],
)
def test_threshold_of_until(tmp_path: Path, until: object, expected: float | None) -> None:
    """What `--until` named is the threshold, if it is a lower limit of the metric that the curves show."""
    found = learn({"ours": [make_run(tmp_path, rising(0.8), until=until)]})["ours"]
    assert found.threshold == expected
    assert bool(found.to_threshold) == (expected is not None)


def test_threshold_that_was_asked_for(tmp_path: Path) -> None:
    """A threshold that is given goes before that of `--until`."""
    group = {"ours": [make_run(tmp_path, rising(0.8), until="success>=0.5")]}
    assert learn(group, threshold=0.3)["ours"].threshold == 0.3
    assert learn(group, threshold=0.0)["ours"].threshold == 0.0


def test_costs_of_the_threshold(tmp_path: Path) -> None:
    """Median env steps, seconds and GPU-seconds to the threshold, with the runs that never got there."""
    runs = [make_run(tmp_path, rising(height), until="success>=0.5") for height in (1.0, 0.5, 0.8, 0.2)]
    costs = {each.cost: each for each in learn({"ours": runs})["ours"].to_threshold}
    # A line to 1 is there at its 6th point, to 0.8 at its 8th, to 0.5 at its 11th and last.
    assert [costs[cost].value for cost in ("env_steps", "seconds", "gpu_seconds")] == [800, 8, 16]
    assert {(each.num_runs, each.num_censored, each.at_least) for each in costs.values()} == {(4, 1, None)}


def test_threshold_that_few_reach(tmp_path: Path) -> None:
    """Where fewer than half got there, it is said what they spent at least."""
    runs = [make_run(tmp_path, rising(height), until="success>=0.5") for height in (1.0, 0.4, 0.2)]
    cost = learn({"ours": runs})["ours"].to_threshold[0]
    assert (cost.value, cost.at_least, cost.num_censored) == (None, 1100, 2)


def test_runs_without_curves(tmp_path: Path) -> None:
    """A run without a curve is left out of its cell, a cell without any out of the group, and a group may be empty."""
    bare, known = make_run(tmp_path, None), [make_run(tmp_path, rising(0.5)) for _ in range(2)]
    found = learn({"base": [bare], "ours": [*known, bare]})
    assert list(found) == ["ours"]
    assert found["ours"].area is not None
    assert found["ours"].against_reference == "unknown"
    assert learn({"base": [bare], "ours": []}) == {}


def test_runs_of_another_metric(tmp_path: Path) -> None:
    """Curves of one metric stand side by side: those of another are left out."""
    returns = make_run(tmp_path, rising(100), metric="return")
    found = learn({"base": [make_run(tmp_path, rising(0.5))], "ours": [returns]})
    assert list(found) == ["base"]
    assert found["base"].metric == "success"


def test_final_is_the_middle_of_the_last_points(tmp_path: Path) -> None:
    """The final value is the interquartile mean of where the runs ended, with an interval from 3 runs on."""
    runs = [make_run(tmp_path, rising(height)) for height in (0.1, 0.6, 0.7, 0.9)]
    final = learn({"ours": runs})["ours"].final
    assert final.value == pytest.approx(0.65)
    assert (final.units, final.num_units) == ("seeds", 4)
    assert final.low is not None
    assert final.high is not None
    assert final.low < 0.65 < final.high
    final = learn({"ours": runs[:2]})["ours"].final
    assert final.value == pytest.approx(0.35)
    assert (final.low, final.high, final.units) == (None, None, None)


def test_intervals_do_not_change_with_what_else_is_there(tmp_path: Path) -> None:
    """A cell has the same interval whatever cells are beside it."""
    ours = [make_run(tmp_path, rising(height)) for height in (0.1, 0.6, 0.7, 0.9)]
    other = [make_run(tmp_path, rising(height)) for height in (0.2, 0.3, 0.4)]
    alone, again, beside = learn({"ours": ours}), learn({"ours": ours}), learn({"base": other, "ours": ours})
    assert alone["ours"].final == again["ours"].final == beside["ours"].final


def test_points_of_the_mean_curve(tmp_path: Path) -> None:
    """The curve is the mean over runs at equal distances, with the lowest and the highest run beside it."""
    runs = [make_run(tmp_path, rising(height, 12)) for height in (0.4, 0.8)]
    curve = learn({"ours": runs})["ours"].curve
    assert (curve[0].env_steps, curve[-1].env_steps, len(curve)) == (100, 1200, 60)
    last = curve[-1]
    assert (last.value, last.low, last.high, last.seconds) == pytest.approx((0.6, 0.4, 0.8, 12))
    one = learn({"ours": runs[:1]})["ours"].curve[-1]
    assert one.value == pytest.approx(0.4)
    assert (one.low, one.high) == (None, None)


def test_runs_that_never_got_there_count(tmp_path: Path) -> None:
    """One of four got to the threshold: of the others one finished below, one timed out, one had no curve at all."""
    group = {
        "ours": [
            make_run(tmp_path, rising(1.0), until="success>=0.5"),
            make_run(tmp_path, rising(0.2)),
            make_run(tmp_path, rising(0.4, 40), timed_out=True),
            make_run(tmp_path, None, first=6),
        ]
    }
    found = learn(group)["ours"]
    steps, seconds, gpu_seconds = found.to_threshold
    assert (steps.num_runs, steps.num_censored, steps.value) == (4, 3, None)
    # What they spent: 600, 900, 1,100 and 4,000 env steps, the lower of the middle two.
    assert (steps.at_least, seconds.at_least, gpu_seconds.at_least) == (900, 9, 18)
    assert found.final.value == pytest.approx(0.6)  # of those that finished, and have a curve
    assert len(found.finals) == 2


def test_runs_that_timed_out_before_an_iteration_ended_have_spent_nothing(tmp_path: Path) -> None:
    """Without a series there is nothing to read, and the run is still one that did not get there."""
    nothing = make_run(tmp_path, None, timed_out=True)
    (nothing.path / SERIES_FILE).unlink()
    group = {"ours": [make_run(tmp_path, rising(1.0), until="success>=0.5"), nothing]}
    steps = learn(group)["ours"].to_threshold[0]
    assert (steps.num_runs, steps.num_censored) == (2, 1)


def test_a_cell_that_no_run_finished_learned_nothing_that_is_told(tmp_path: Path) -> None:
    """Timed-out runs alone have no final value."""
    assert learn({"ours": [make_run(tmp_path, rising(1.0), timed_out=True)]}) == {}


def test_until_says_of_what_the_curves_are(tmp_path: Path) -> None:
    """Runs that ended by their return are compared by it, though they have a success."""
    run = make_run(tmp_path, rising(1.0), until="return>=5")
    frame = pd.read_parquet(run.path / SERIES_FILE)
    frame["return"] = 10 * frame["success"]
    frame.to_parquet(run.path / SERIES_FILE)
    found = learn({"ours": [run]})["ours"]
    assert (found.metric, found.threshold, found.final.value) == ("return", 5, 10)
    assert found.to_threshold[0].value == 600
    assert learn({"ours": [run]}, threshold=0.5)["ours"].metric == "success"
