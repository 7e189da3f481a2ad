"""All times here are seconds of one made-up clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.overhead.moments import Moments
from benchmarks.overhead.unused import EnvSteps, Held, Reservation, lane_busy, learner_lost_s, lost_s, queue_full

ALWAYS = (0.0, 100.0)


def env(*steps: tuple[float, float, float], gpu: int = 0, worker: int = 1) -> EnvSteps:
    """Begin, simulated, end of each step."""
    return EnvSteps(gpu=gpu, worker=worker, times=np.array(steps))


def reserved(work: str, asked_s: float, end_s: float, num_items: int = 1) -> Reservation:
    """One reservation."""
    return Reservation(work=work, num_items=num_items, asked_s=asked_s, end_s=end_s)


def lost(
    environment: EnvSteps,
    reservations: Sequence[Reservation],
    *,
    mates: Sequence[EnvSteps] = (),
    colleagues: Sequence[EnvSteps] = (),
    held: Held | None = None,
    window: tuple[float, float] = ALWAYS,
) -> float:
    """What an environment loses on a GPU with these reservations."""
    lane = lane_busy(reservations, ("render", "infer"))
    inferences = [(r.asked_s, r.end_s) for r in reservations if r.work == "infer"]
    return lost_s(
        environment,
        mates=mates,
        colleagues=colleagues,
        rendering=lane,
        inferring=lane,
        inferences=np.array(inferences).reshape(-1, 2),
        held=held or Held(),
        window=window,
    )


def test_moments_unite_and_intersect() -> None:
    """Overlapping, touching, nested and empty intervals make a union; two unions an intersection."""
    first = Moments([(5, 6), (0, 2), (1, 3), (3, 4), (1.5, 1.6), (9, 9)])
    assert first.intervals.tolist() == [[0, 4], [5, 6]]
    assert (first & Moments([(3, 5.5), (5.8, 20)])).intervals.tolist() == [[3, 4], [5, 5.5], [5.8, 6]]
    assert (first | Moments([(4, 5)])).intervals.tolist() == [[0, 6]]
    assert (first & Moments()).intervals.tolist() == []


def test_moments_cover_intervals() -> None:
    """What is covered of an interval is counted once, and never below 0."""
    covered = Moments([(0, 2), (4, 5)]).covered_s(np.array([1.0, 3.0, -5.0, 4.5]), np.array([4.5, 3.5, 10.0, 1.0]))
    assert covered.tolist() == pytest.approx([1.5, 0, 3, 0])
    assert Moments().covered_s(np.array([1.0]), np.array([2.0])).tolist() == [0]


def test_a_lane_serves_first_come_first_served() -> None:
    """Queued work begins when the work before it ends, and works of the other lane do not count."""
    busy = lane_busy(
        [reserved("render", 1, 2), reserved("infer", 1.5, 4), reserved("learn", 0, 50), reserved("render", 6, 7)],
        ("render", "infer"),
    )
    assert busy.intervals.tolist() == [[1, 4], [6, 7]]


def test_a_cycle_without_delays_loses_nothing() -> None:
    """Simulating, rendering, inference and the next step follow each other: no time is lost."""
    cycle = [reserved("render", 2, 3), reserved("infer", 3, 5), reserved("render", 7, 8)]
    assert lost(env((0, 2, 3), (5, 7, 8)), cycle) == pytest.approx(0)


def test_each_delay_of_a_cycle_is_lost() -> None:
    """Overshoot of the simulation, of rendering, a late request and a late action add up."""
    late = [reserved("render", 2.1, 3.1), reserved("infer", 3.7, 5.7), reserved("render", 8, 9)]
    delays = {"simulation": 0.1, "rendering": 0.2, "request": 0.4, "action": 0.8}
    assert lost(env((0, 2, 3.3), (6.5, 8, 9)), late) == pytest.approx(sum(delays.values()))


def test_waiting_for_a_busy_lane_is_not_lost() -> None:
    """Others render and are inferred for first: the lane is not free."""
    queue = [
        reserved("infer", 1, 4),  # others
        reserved("render", 2, 5),
        reserved("render", 5, 6),  # others
        reserved("infer", 5, 7),
        reserved("render", 8, 9),
    ]
    assert lost(env((0, 2, 5), (7, 8, 9)), queue) == pytest.approx(0)


def test_a_group_waits_for_its_members() -> None:
    """Until the last mate has stepped there is nothing to infer; afterwards time is lost."""
    mate = env((0, 8, 8), (10, 11, 11))
    reservations = [reserved("infer", 9, 10)]
    assert lost(env((0, 2, 2), (10, 12, 12)), reservations, mates=[mate]) == pytest.approx(1)


def test_an_action_waits_for_its_worker() -> None:
    """While the worker steps another environment the action is not late; while it does nothing it is."""
    colleague = env((4, 7, 7))
    reservations = [reserved("infer", 2, 3)]
    assert lost(env((0, 2, 2), (8, 9, 9)), reservations, colleagues=[colleague]) == pytest.approx(2)


def test_holding_back_is_lost_only_as_far_as_nothing_ran() -> None:
    """An inference before the rank learned served others; learning without its lane is lost."""
    reservations = [reserved("infer", 2, 3), reserved("infer", 10, 11)]
    held = Held(spans=Moments([(3, 10)]), excused=Moments([(4, 9)]))
    assert lost(env((0, 2, 2), (11, 12, 12)), reservations, held=held) == pytest.approx(2)


def test_only_the_window_counts() -> None:
    """A loss outside of the window is none."""
    steps = env((0, 1, 1), (3, 4, 4), (7, 8, 8))
    assert lost(steps, [], window=(0, 100)) == pytest.approx(5)
    assert lost(steps, [], window=(2, 100)) == pytest.approx(3)
    assert lost(steps, [], window=(0, 5)) == pytest.approx(2)


def test_a_learner_loses_what_passes_with_a_whole_batch_and_a_free_lane() -> None:
    """Two environments with T = 2 and batches of 4: ready when both have finished a trajectory, until it is taken."""
    ends = [np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 3, 5, 6])]
    learning = [reserved("prepare", 3.5, 4.0), reserved("learn", 4.25, 6.0, 4), reserved("learn", 8, 9, 4)]
    assert learner_lost_s(ends, 2, learning, (0, 10)) == pytest.approx(0.5 + 0.25 + 2)
    assert learner_lost_s(ends, 2, learning, (7, 10)) == pytest.approx(1)
    assert learner_lost_s(ends, 2, [], (0, 10)) == pytest.approx(10)


def test_waiting_to_begin_a_trajectory_is_not_lost_while_the_queue_is_full() -> None:
    """With trajectories of 2 steps, an environment waits from 2 to 5 before its third, from 6 to 7 before its fourth.

    The queue is full from 3 to 8: 2 s of the first wait are excused; in the second it is in the middle of a trajectory.
    """
    waits = env((0, 1, 1), (1, 2, 2), (5, 6, 6), (7, 8, 8))
    assert lost(waits, []) == pytest.approx(3 + 1)
    full = Held(full=Moments([(3, 8)]), trajectory_steps=2)
    assert lost(waits, [], held=full) == pytest.approx(1 + 1)


def test_inferences_of_others_while_the_queue_is_full_are_not_its_own() -> None:
    """Before its third step the environment waits for the queue from 2 to 5, and for inference to 6; others go on."""
    waits = env((0, 1, 1), (1, 2, 2), (6, 7, 7))
    inferences = [reserved("infer", asked, asked + 0.5) for asked in (0.5, 1.5, 2.5, 3.5)] + [reserved("infer", 5, 6)]
    assert lost(waits, inferences) == pytest.approx(0.5 + 3)
    assert lost(waits, inferences, held=Held(full=Moments([(1.5, 5)]), trajectory_steps=2)) == 0


def test_a_queue_is_full_from_the_step_that_fills_it_until_a_batch_is_taken() -> None:
    """Two environments, trajectories of 2 steps, batches of 4, a limit of 6: taken just before they are prepared."""
    ends = [np.array([1.0, 2, 3, 4, 5, 6, 7, 8]), np.array([1.5, 2.5])]
    learning = [reserved("prepare", 2.6, 3, 4), reserved("learn", 3, 7.5, 4), reserved("prepare", 8.5, 9, 4)]
    # 2 at 2, 4 at 2.5, 0 at 2.6, 2 at 4, 4 at 6, 6 at 8, 2 at 8.5
    assert queue_full(ends, 2, learning, 6, 20).intervals.tolist() == [[8, 8.5]]
    assert queue_full(ends, 2, learning, 4, 20).intervals.tolist() == [[2.5, 2.6], [6, 8.5]]
    assert queue_full(ends, 2, [], 4, 20).intervals.tolist() == [[2.5, 20]]
