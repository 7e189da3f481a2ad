from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

from benchmarks.learn_table import Trained, bounded_median, compared, table
from rlbench.results.statistics.learning_curves import Curve


def trained(system: str, seed: int, env_steps: int, seconds: float, *, reached: bool = True) -> Trained:
    """A run."""
    return Trained(system=system, seed=seed, reached=reached, env_steps=env_steps, seconds=seconds)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([(5.0, True)], (5.0, True)),
        ([(9.0, True), (1.0, True), (4.0, True)], (4.0, True)),
        ([(9.0, True), (3.0, False), (4.0, True)], (9.0, True)),
        ([(9.0, False), (3.0, False), (4.0, True)], (3.0, False)),
        ([(2.0, True), (4.0, True)], (3.0, True)),
        ([(2.0, True), (4.0, False)], (3.0, False)),
    ],
)
def test_a_censored_run_counts_as_larger_than_all_that_got_there(
    figures: list[tuple[float, bool]], expected: tuple[float, bool]
) -> None:
    """The median is a bound as soon as a censored run is in the middle, however small its figure."""
    assert bounded_median(figures) == expected


def test_the_table_has_medians_each_seed_and_marks() -> None:
    """Rows stand in the order asked for; censored figures, and medians that are censored, are marked."""
    results = [
        trained("ver", 1, 200_000, 90.4),
        trained("ver", 0, 150_000, 80.0),
        trained("ver", 2, 999_000, 600.2, reached=False),
        trained("appo", 0, 999_000, 600.0, reached=False),
        trained("appo", 1, 1_000, 10.0),
        trained("appo", 2, 999_500, 600.0, reached=False),
    ]
    lines = table(results, ["appo", "ver", "sync"], [0, 1, 2]).splitlines()
    assert lines[2:] == [
        "| `appo` | > 999,000 | > 600 | > 999,000 / > 600; 1,000 / 10; > 999,500 / > 600 |",
        "| `ver` | 200,000 | 90 | 150,000 / 80; 200,000 / 90; > 999,000 / > 600 |",
        "",
        "`>`: not reached within the limit, a lower bound.",
    ]


def test_the_table_says_which_seeds_are_missing() -> None:
    """A seed without a finished run is named, and not taken for censored."""
    lines = table([trained("ver", 2, 100, 1.0)], ["ver"], [0, 2]).splitlines()
    assert lines[2] == "| `ver` | 100 | 1 | none; 100 / 1 |"
    assert lines[-1].startswith("none:")
    whole = table([trained("appo:learn.correct=none", 0, 100, 1.0)], ["appo:learn.correct=none"], [0])
    assert "none:" not in whole, "a setting is no missing seed"


def level(height: float, first: int, last: int) -> Curve:
    """A curve that stays at a height between two numbers of env steps."""
    axis = np.array([first, last], float)
    return Curve(metric="return", values=np.full(2, height), env_steps=axis, seconds=axis, gpu_seconds=axis)


def test_areas_are_compared_where_all_curves_are() -> None:
    """The range is the one that all cover, and the interval is Welch's, of the difference of the means."""
    ours = [level(height, 100, 1000) for height in (10, 14, 12)]
    theirs = [level(height, 150, 900) for height in (8, 9, 7)]
    said = compared(ours, theirs, "peer")
    assert "from 150 to 900 env steps: sync 12 (10, 14, 12), peer 8 (8, 9, 7); difference +4" in said
    difference, error, freedom = 4, np.sqrt(4 / 3 + 1 / 3), (5 / 3) ** 2 / ((4 / 3) ** 2 / 2 + (1 / 3) ** 2 / 2)
    half = error * stats.t.isf(0.025, freedom)
    low, high = (float(end) for end in re.findall(r"[+-]\d+", said.split("95 %")[1]))
    assert (low, high) == (round(difference - half), round(difference + half))


def test_a_single_curve_is_compared_with_nothing() -> None:
    """What lacks is said."""
    assert "needs 2 curves of each" in compared([level(1, 0, 9)], [level(1, 0, 9), level(2, 0, 9)], "peer")
