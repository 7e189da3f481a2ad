from __future__ import annotations

import array

import pytest

from rlbench.harness.devices.booking import (
    BUSY_S,
    CORES,
    COVERED_UNTIL,
    LANE,
    LINK,
    Words,
    book,
    book_core,
    book_link,
    end_beside,
)

RENDER, LEARN = 0, 1
FACTORS = {RENDER: 4.0, LEARN: 2.0}
"""How much slower each lane is beside the other."""


def clock(num_cores: int = 0) -> Words:
    """Of a GPU that was never used."""
    return array.array("d", bytes(8 * (CORES + num_cores)))


def booked(words: Words, lane: int, now: float, took: float) -> float:
    """When work will be done on a lane."""
    return book(words, lane, now, took, FACTORS[lane], FACTORS[1 - lane])


@pytest.mark.parametrize("other_free_at", [0.0, 5.0, 5.5, 7.0, 8.9, 9.0, 99.0])
def test_slower_only_beside_the_other_lane(other_free_at: float) -> None:
    """Work gets done at a quarter of the speed beside the other lane, at full speed otherwise, and all of it."""
    factor, start, took = 4.0, 5.0, 1.0
    ends_at = end_beside(start, took, other_free_at, factor)
    beside = max(0.0, min(ends_at, other_free_at) - start)
    alone = ends_at - start - beside
    assert beside / factor + alone == pytest.approx(took)


def test_a_lane_is_first_come_first_served() -> None:
    """Work begins when it is there and what came before it is done, and takes its time."""
    words = clock()
    assert [booked(words, RENDER, now, 2.0) for now in (1.0, 1.5, 9.0)] == [3.0, 5.0, 11.0]
    assert words[LANE + RENDER] == 11.0
    assert words[LANE + LEARN] == 0.0


def test_work_that_takes_no_time_waits_for_nothing() -> None:
    """What costs nothing is done at once, whatever is queued, and leaves no trace."""
    words = clock()
    booked(words, RENDER, 0.0, 5.0)
    before = list(words)  # type: ignore[call-overload]  # it is an array
    assert booked(words, RENDER, 1.0, 0.0) == 1.0
    assert booked(words, LEARN, 1.0, 0.0) == 1.0
    assert list(words) == before  # type: ignore[call-overload]


def test_rendering_puts_learning_off() -> None:
    """Beside rendering learning loses half of its speed, so its end moves; it is the lane's word that says where to."""
    words = clock()
    assert booked(words, LEARN, 0.0, 10.0) == 10.0
    assert booked(words, RENDER, 2.0, 1.0) == 6.0  # four times as long
    assert words[LANE + LEARN] == 12.0
    assert booked(words, RENDER, 11.0, 1.0) == pytest.approx(11 + 1 + 1 * (1 - 1 / 4))  # beside it for one second
    assert words[LANE + LEARN] == 12.5


def test_learning_begins_slowly_beside_what_is_queued() -> None:
    """Learning that finds rendering queued is slower for as long as that lasts, and puts nothing off."""
    words = clock()
    assert booked(words, RENDER, 0.0, 6.0) == 6.0
    assert booked(words, LEARN, 2.0, 5.0) == pytest.approx(2 + 4 + (5 - 4 / 2))
    assert words[LANE + RENDER] == 6.0


def test_busy_time_is_the_union_of_both_lanes() -> None:
    """Time that both lanes are busy counts once, idle time never."""
    words = clock()
    booked(words, RENDER, 0.0, 3.0)
    booked(words, LEARN, 1.0, 1.0)  # until 3, beside it
    assert words[BUSY_S] == 3.0
    booked(words, RENDER, 10.0, 2.0)
    assert words[BUSY_S] == 5.0
    assert words[COVERED_UNTIL] == 12.0


def test_a_simulation_takes_the_core_that_is_free_first() -> None:
    """Of several cores; with one, simulations go one after the other."""
    words = clock(3)
    assert [book_core(words, 3, 0.0, seconds) for seconds in (5.0, 2.0, 9.0, 1.0, 1.0)] == [5.0, 2.0, 9.0, 3.0, 4.0]
    assert book_core(words, 3, 20.0, 1.0) == 21.0
    one = clock(1)
    assert [book_core(one, 1, now, 2.0) for now in (0.0, 0.0, 7.0)] == [2.0, 4.0, 9.0]
    assert words[LANE + RENDER] == words[LANE + LEARN] == words[BUSY_S] == words[LINK] == 0.0


def test_work_without_a_gpu_holds_cores() -> None:
    """It begins when its lane and as many cores are free, and simulations wait until it is done."""
    words = clock(3)
    assert [book_core(words, 3, 0.0, seconds) for seconds in (5.0, 2.0, 3.0)] == [5.0, 2.0, 3.0]
    assert book(words, LEARN, 1.0, 10.0, 1.0, 1.0, 3, 2) == 13.0  # when two of three are free
    assert book(words, RENDER, 1.0, 1.0, 1.0, 1.0, 3, 1) == 6.0  # on the third
    assert [book_core(words, 3, 0.0, 1.0) for _ in range(3)] == [7.0, 8.0, 9.0]
    assert list(words)[CORES:] == [9.0, 13.0, 13.0]  # type: ignore[call-overload]  # it is an array
    assert book(words, LEARN, 0.0, 0.0, 1.0, 1.0, 3, 2) == 0.0


def test_a_link_carries_one_message_at_a_time() -> None:
    """A message queues behind those that came before it; cores and lanes do not mind."""
    words = clock(1)
    assert [book_link(words, now, 2.0) for now in (1.0, 1.5, 9.0)] == [3.0, 5.0, 11.0]
    assert [words[LANE], words[LANE + 1], words[BUSY_S], words[CORES]] == [0.0] * 4
