from __future__ import annotations

import math
from typing import Any

import pytest

from rlbench.harness.contract.budget import LARGEST, Limits, Progress, parse_condition


@pytest.mark.parametrize(
    ("limits", "before", "at"),
    [
        (Limits(iterations=3), Progress(iterations=2), Progress(iterations=3)),
        (Limits(seconds=1.5), Progress(seconds=1.4), Progress(seconds=1.5)),
        (Limits(env_steps=100), Progress(env_steps=99), Progress(env_steps=128)),
        (Limits(iterations=9, env_steps=5), Progress(iterations=8, env_steps=4), Progress(env_steps=5)),
        (Limits(), Progress(iterations=10**9), Progress(stop_requested=True)),
        (Limits(until="success>=0.9"), Progress(metrics={"success": 0.89}), Progress(metrics={"success": 0.9})),
        (Limits(until="success>0.9"), Progress(metrics={"success": 0.9}), Progress(metrics={"success": 0.91})),
        (Limits(until="length<=20"), Progress(metrics={"length": 21}), Progress(metrics={"length": 20})),
        (Limits(until="return<-1.5"), Progress(metrics={"return": -1.5}), Progress(metrics={"return": -1.6})),
        (Limits(until="spl>=0.5"), Progress(metrics={"success": 1.0}), Progress(metrics={"spl": 0.5})),
    ],
)
def test_a_run_ends_at_its_first_limit(limits: Limits, before: Progress, at: Progress) -> None:
    """Each limit ends the run when it is reached, the first of several does, and none before."""
    assert not limits.is_spent(before)
    assert limits.is_spent(at)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(seconds=100), 125.0),
        (Limits(seconds=12), 15.0),
        (Limits(seconds=8, iterations=2), 11.0),
        (Limits(seconds=0.5), 3.5),
        (Limits(iterations=2, env_steps=100, until="spl>0"), None),
    ],
)
def test_a_rollout_is_broken_off_some_time_after_the_budget(limits: Limits, expected: float | None) -> None:
    """A quarter of the seconds later, but 3 s at least; where there is no limit in seconds, never."""
    assert limits.breaks_off_s == expected


@pytest.mark.parametrize(
    ("limits", "progress", "spent"),
    [
        (Limits(iterations=4), Progress(iterations=1), 0.25),
        (Limits(iterations=4, env_steps=100), Progress(iterations=1, env_steps=90), 0.9),
        (Limits(seconds=10, until="spl>0"), Progress(seconds=12), 1.0),
        (Limits(until="spl>0"), Progress(iterations=9), 0.0),
    ],
)
def test_the_spent_part_is_that_of_the_nearest_limit(limits: Limits, progress: Progress, spent: float) -> None:
    """From 0 to 1; a metric has no part, so it is 0 where there is no other limit."""
    assert limits.spent(progress) == spent
    assert limits.has_end == (spent > 0)


def test_metric_without_an_episode_does_not_end_a_run() -> None:
    """Before the first episodes there is no metric, so no condition on one is met."""
    assert not Limits(until="length<=1e9").is_spent(Progress(iterations=5))


@pytest.mark.parametrize("value", [0, -1, -0.5, math.nan, math.inf, -math.inf, LARGEST * 2])
@pytest.mark.parametrize("name", ["iterations", "seconds", "env_steps"])
def test_limits_are_above_zero_and_finite(name: str, value: float) -> None:
    """A limit that could end no run, or every one at once, is refused with its option."""
    values: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=rf"^--{name.replace('_', '-')} \S+: must be above 0 and at most 1e\+12$"):
        Limits(**values)


def test_only_limits_without_any_are_empty() -> None:
    """`is_empty` says whether nothing would end the run."""
    assert Limits().is_empty
    assert not any(
        limits.is_empty
        for limits in (Limits(iterations=1), Limits(seconds=1), Limits(env_steps=1), Limits(until="spl>0"))
    )


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("success>=0.9", ("success", ">=", 0.9)),
        (" return < -12.5e1 ", ("return", "<", -125.0)),
        ("length<=7", ("length", "<=", 7.0)),
        ("spl>0", ("spl", ">", 0.0)),
    ],
)
def test_conditions(text: str, parsed: tuple[str, str, float]) -> None:
    """A condition is a metric, a comparison and a number."""
    assert parse_condition(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "success",
        "success>=",
        ">=1",
        "reward>=1",
        "success=0.9",
        "success>=x",
        "success>=nan",
        "spl>1e999",
        "spl>1;2",
    ],
)
def test_bad_conditions(text: str) -> None:
    """Anything else is refused with the form and the metrics that there are."""
    with pytest.raises(
        ValueError, match=r"(must be METRIC>=NUMBER .*; metrics|unknown metric; known): return, length, success, spl"
    ):
        parse_condition(text)
