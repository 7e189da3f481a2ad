from __future__ import annotations

from dataclasses import replace

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.live.expected import START_S, Expected, Running, TimeLeft, expect, in_words, time_left
from tests.harness.live.test_display import CELL

PLANNED, GUESSED = Expected(seconds=100, how=""), Expected(seconds=600, how="", is_at_most=True)


def test_the_plan_goes_by_limits_and_by_what_was_run_before() -> None:
    """A limit in seconds, with the start; what a cell took before; else the time limit, which is one at most."""
    timed = replace(CELL, limits=Limits(seconds=30))
    assert expect(timed).seconds == 30 + START_S
    assert expect(timed, 12.5) == Expected(seconds=12.5, how="as before")
    assert expect(replace(timed, time_limit_s=20)).seconds == 20
    assert expect(CELL) == Expected(seconds=600, how="at most, by --time-limit", is_at_most=True)


@pytest.mark.parametrize(
    ("took_s", "ended", "running", "left"),
    [
        pytest.param({}, [], {}, TimeLeft(seconds=400), id="nothing was seen"),
        pytest.param({}, [], {0: Running(elapsed_s=30)}, TimeLeft(seconds=370), id="one has begun"),
        pytest.param({}, [], {0: Running(elapsed_s=130)}, TimeLeft(seconds=300), id="and is late"),
        pytest.param({}, [], {0: Running(elapsed_s=30, left_s=5)}, TimeLeft(seconds=305), id="and knows better"),
        pytest.param({0: 50}, [0], {}, TimeLeft(seconds=150), id="the first was quicker than planned"),
        pytest.param({0: 50, 1: 250}, [0, 1], {}, TimeLeft(seconds=300), id="the second was slower"),
        pytest.param({}, [0], {}, TimeLeft(seconds=300), id="the first failed at once"),
        pytest.param({0: 90}, [0, 1, 2, 3], {}, TimeLeft(seconds=0), id="all have ended"),
    ],
)
def test_what_is_left_is_the_plan_times_what_was_seen(
    took_s: dict[int, float], ended: list[int], running: dict[int, Running], left: TimeLeft
) -> None:
    """Finished cells correct the plan for those that are left; failed ones say nothing of time."""
    assert time_left([PLANNED] * 4, took_s, ended, running) == left


@pytest.mark.parametrize(
    ("took_s", "ended", "running", "left"),
    [
        pytest.param({}, [], {}, TimeLeft(seconds=1300, is_at_most=True), id="only the time limit is known"),
        pytest.param({}, [], {1: Running(elapsed_s=20, left_s=40)}, TimeLeft(seconds=200), id="one runs"),
        pytest.param({1: 70}, [1], {}, TimeLeft(seconds=170), id="one has finished"),
    ],
)
def test_cells_without_a_known_length_are_as_long_as_others_of_them(
    took_s: dict[int, float], ended: list[int], running: dict[int, Running], left: TimeLeft
) -> None:
    """Until one of them has said something, the time limit is the bound."""
    assert time_left([PLANNED, GUESSED, GUESSED], took_s, ended, running) == left


@pytest.mark.parametrize(
    ("at_once", "ended", "running", "left_s"),
    [
        pytest.param(2, [], {}, 200, id="two by two"),
        pytest.param(3, [], {}, 200, id="three, then one"),
        pytest.param(9, [], {}, 100, id="room for all"),
        pytest.param(2, [0], {1: Running(elapsed_s=70), 2: Running(elapsed_s=10)}, 130, id="the last after the first"),
        pytest.param(2, [], {3: Running(elapsed_s=0, left_s=40)}, 200, id="one that knows better"),
        pytest.param(1, [2, 3], {0: Running(elapsed_s=40), 1: Running(elapsed_s=30)}, 70, id="more than was known"),
    ],
)
def test_cells_that_run_side_by_side(
    at_once: int, ended: list[int], running: dict[int, Running], left_s: float
) -> None:
    """Each that ends makes room for the next of the plan; the sweep is over when the last one is."""
    assert time_left([PLANNED] * 4, {}, ended, running, at_once) == TimeLeft(seconds=left_s)


def test_times_in_words() -> None:
    """In two units at most."""
    assert [in_words(seconds) for seconds in (0.4, 59.4, 59.6, 250, 7500)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "4 min 10 s",
        "2 h 05 min",
    ]
    assert str(TimeLeft(seconds=10, is_at_most=True)) == "at most 10 s left"
