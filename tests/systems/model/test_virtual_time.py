from __future__ import annotations

import threading

import pytest

from tests.systems.model.virtual_time import Queue, VirtualTime


def test_tasks_run_in_the_order_of_their_moments() -> None:
    """Whoever sleeps until the earliest moment goes on; the clock jumps there, and nobody really sleeps."""
    clock, seen = VirtualTime(), []

    def work(name: str, seconds: float) -> None:
        for _ in range(3):
            clock.sleep(seconds)
            seen.append((clock.now_s, name))

    clock.start(lambda: work("slow", 1000.0), 0)
    clock.start(lambda: work("fast", 700.0), 0)
    clock.run()
    assert seen == [
        (700.0, "fast"),
        (1000.0, "slow"),
        (1400.0, "fast"),
        (2000.0, "slow"),
        (2100.0, "fast"),
        (3000.0, "slow"),
    ]


def test_those_who_are_given_something_at_one_moment_go_on_in_that_order() -> None:
    """A queue's owner sleeps until there is something; several go on in the order of the giving, not of the waiting."""
    clock, seen = VirtualTime(), []
    queues = [Queue[str](clock) for _ in range(3)]

    def own(queue: Queue[str]) -> None:
        while item := queue.get():
            seen.append((clock.now_s, item))

    def give() -> None:
        clock.sleep(2.0)
        for number in (2, 0, 1):
            queues[number].put(f"item {number}")
        for queue in queues:
            queue.put(None)

    for queue in queues:
        clock.start(lambda queue=queue: own(queue), 0)  # type: ignore[misc]  # it is bound
    clock.start(give, 0)
    clock.run()
    assert seen == [(2.0, "item 2"), (2.0, "item 0"), (2.0, "item 1")]


def test_conditions_hold_before_time_goes_on() -> None:
    """A task that waits goes on at the moment at which another one makes that true."""
    clock, seen = VirtualTime(), []
    done = threading.Event()

    def wait() -> None:
        clock.wait(done.is_set)
        seen.append(clock.now_s)

    def set_it() -> None:
        clock.sleep(1.5)
        done.set()
        clock.sleep(5.0)

    clock.start(wait, 0)
    clock.start(set_it, 1)
    clock.run()
    assert (seen, clock.now_s) == ([1.5], 6.5)


def test_what_a_task_raises_is_raised_and_the_others_end() -> None:
    """A failure is not lost, and leaves no thread behind."""
    clock, before = VirtualTime(), threading.active_count()

    def fail() -> None:
        clock.sleep(1.0)
        raise ValueError("it failed")

    clock.start(lambda: clock.wait(lambda: False), 0)
    clock.start(lambda: clock.sleep(1e9), 0)
    clock.start(clock.idle, 0)
    clock.start(fail, 0)
    with pytest.raises(ValueError, match="it failed"):
        clock.run()
    assert threading.active_count() == before


def test_waiting_for_what_will_never_happen_is_an_error() -> None:
    """When nobody can go on, that is said instead of hanging."""
    clock = VirtualTime()
    clock.start(lambda: clock.wait(lambda: False), 0)
    with pytest.raises(AssertionError, match="never happen"):
        clock.run()
