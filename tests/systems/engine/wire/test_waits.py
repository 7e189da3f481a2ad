"""Which environments are late, on a clock of the test's own."""

from __future__ import annotations

import numpy as np
import pytest

from rlbench.systems.engine.wire import errors
from rlbench.systems.engine.wire.errors import Waits

LIMIT_S = 10.0
PER_POOL, PER_RECV = 4, 2


class Clock:
    """Stands still between the settings of a test."""

    now = 0.0

    def perf_counter(self) -> float:
        """What the test has set."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that `errors` reads."""
    clock = Clock()
    monkeypatch.setattr(errors, "time", clock)
    return clock


def answer(waits: Waits, clock: Clock, now: float, *envs: int) -> None:
    """Replies that are read now."""
    clock.now = now
    waits.heard(np.array(envs, np.int32), waits.reading())


def test_alone_an_environment_is_late_by_itself(clock: Clock) -> None:
    """Whatever others do; until its worker has been heard."""
    waits = Waits(4, 2, 0)
    waits.sent(np.array([0, 2, 3]), 1.0)
    answer(waits, clock, 8.0, 3)
    assert waits.late(LIMIT_S, 10.9) is None
    assert waits.late(LIMIT_S, 11.1) == 0
    answer(waits, clock, 12.0, 0)
    assert waits.late(LIMIT_S, 17.9) is None
    assert waits.late(LIMIT_S, 18.1) == 2


def test_too_few_for_an_answer_are_never_late(clock: Clock) -> None:
    """However long the rank learns before it sends more; with enough of them a silent pool is late."""
    waits = Waits(8, PER_POOL, PER_RECV)
    waits.sent(np.array([1, 4, 5]), 0.0)
    answer(waits, clock, 1.0, 4, 5)
    assert waits.late(LIMIT_S, 1000.0) is None
    waits.sent(np.array([2]), 1000.0)
    assert waits.late(LIMIT_S, 1009.9) is None
    assert waits.late(LIMIT_S, 1010.1) == 1


def test_one_that_others_overtake_for_too_long_is_late(clock: Clock) -> None:
    """Not so as long as the answers of the others may have been written soon after it was sent an action."""
    waits = Waits(4, PER_POOL, PER_RECV)
    waits.sent(np.arange(4), 0.0)
    answer(waits, clock, 100.0, 0, 1)  # the rank was busy: they may have come at once
    assert waits.late(LIMIT_S, 100.1) is None
    waits.sent(np.array([0, 1]), 100.0)
    answer(waits, clock, 105.0, 0, 1)  # after the rank had read at 100
    assert waits.late(LIMIT_S, 105.1) == 2
    answer(waits, clock, 105.2, 2)
    assert waits.late(LIMIT_S, 105.3) == 3
