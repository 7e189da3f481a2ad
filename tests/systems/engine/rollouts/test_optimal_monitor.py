"""Letters: R ranks, N environments of a rank, T steps, S samples of all ranks together."""

from __future__ import annotations

import heapq
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from rlbench.harness.contract.device import Place
from rlbench.systems.choices.preempt import Optimal, Plan, arrivals_s, pause_s, plan
from rlbench.systems.engine.rollouts.monitors import open_monitor
from rlbench.systems.engine.rollouts.rollout import FixedRollout, Rollout, VariableRollout
from rlbench.systems.engine.wire.group import Group
from tests.systems.engine.averaging.offices import ALONE, Apart, group_of
from tests.systems.engine.ranks import run_ranks

Times = npt.NDArray[np.float64]


def slow_plan(step_times_s: Times, learn_s: float, num_steps: int, *, whole: bool, hides_learning: bool) -> Plan:
    """VER section 2.3 to the letter: steps end one after the other, and every S from 1 to T * N * R is tried."""
    num_ranks, num_envs = step_times_s.shape
    ends = [(float(step_times_s[rank, env]), rank, env, 1) for rank in range(num_ranks) for env in range(num_envs)]
    heapq.heapify(ends)
    collected, samples, has_completed, best = [0] * num_ranks, 0, False, Plan(0, 0.0)
    best_rate = 0.0
    while samples < num_steps * num_envs * num_ranks:
        now, rank, env, number = heapq.heappop(ends)
        if collected[rank] == num_steps * num_envs:
            continue  # the rank's rollout is full: its environments stand still
        collected[rank] += 1
        samples += 1
        has_completed |= collected[rank] == num_steps * num_envs
        if not whole or number < num_steps:
            heapq.heappush(ends, (float(step_times_s[rank, env] * (number + 1)), rank, env, number + 1))
        if ends and ends[0][0] == now:
            continue  # what ends at the same moment counts together
        if has_completed or not whole:
            rate = samples / (max(now, learn_s) if hides_learning else now + learn_s)
            if rate >= best_rate * (1 - 1e-12):
                best_rate, best = max(rate, best_rate), Plan(samples, now)
            has_completed = False
    return best


@pytest.mark.parametrize("hides_learning", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_equals_the_literal_search(seed: int, whole: bool, hides_learning: bool) -> None:
    """S and Time(S) equal those of a search through every S, for one to five ranks, alike or a thousandfold apart."""
    rng = np.random.default_rng(seed)
    num_ranks, num_envs, num_steps = (int(rng.integers(1, most + 1)) for most in (5, 6, 9))
    times = np.exp(rng.normal(0, rng.choice([0.01, 0.5, 3.0]), (num_ranks, num_envs)))
    learn_s = float(times.mean() * num_steps * rng.choice([0.01, 0.5, 10.0]))
    rules = {"whole": whole, "hides_learning": hides_learning}
    assert plan(times, learn_s, num_steps, **rules) == slow_plan(times, learn_s, num_steps, **rules)


@pytest.mark.parametrize("whole", [False, True])
def test_equal_environments_are_not_cut(whole: bool) -> None:
    """Where all take equally long, all T * N * R steps are collected: there is no straggler."""
    times = np.full((4, 3), 0.5)
    for hides_learning in (False, True):
        rules = {"whole": whole, "hides_learning": hides_learning}
        assert plan(times, 2.0, 8, **rules) == Plan(4 * 3 * 8, 4.0) == slow_plan(times, 2.0, 8, **rules)


def test_by_hand() -> None:
    """Three ranks of one environment; one is four times as slow. 4 / (4 + 1) is less than 9 / (5 + 1)."""
    times = np.array([[1.0], [1.0], [4.0]])
    found = plan(times, 1.0, 4, whole=False)
    # The fast ranks end at 4 s, with 8 steps and one of the slow rank; each further step costs 4 s.
    assert found == Plan(9, 4.0)
    # With a learning phase that takes far longer, waiting is worth it.
    assert plan(times, 1000.0, 4, whole=False) == Plan(12, 16.0)


def test_learning_that_hides_behind_collecting_costs_nothing() -> None:
    """What is collected while the ranks learn is free: with 12 s of learning, until 12 s, when there are 11 steps.

    With 4 s it ends at 4 s, since 9 / 4 is the most; learning that takes 40 s one after the other speaks for waiting.
    """
    times = np.array([[1.0], [1.0], [4.0]])
    assert plan(times, 4.0, 4, whole=False, hides_learning=True) == Plan(9, 4.0)
    assert plan(times, 12.0, 4, whole=False, hides_learning=True) == Plan(11, 12.0)
    assert plan(times, 12.0, 4, whole=False) == Plan(9, 4.0)
    assert plan(times, 40.0, 4, whole=False) == Plan(12, 16.0)


def test_whole_rollouts_are_cut_where_one_completes() -> None:
    """With `Fixed`, S is the number of steps there are at the moment when some rank completes its rollout."""
    times = np.array([[1.0, 2.0], [3.0, 1.0], [50.0, 1.0]])
    found = plan(times, 0.1, 10, whole=True)
    assert found.seconds in {20.0, 30.0, 500.0}
    assert found == Plan(20 + 16 + 10, 20.0)


@pytest.mark.parametrize("seed", range(20))
def test_arrivals_count_steps_until_the_rollout_is_full(seed: int) -> None:
    """T * N ends of steps, ascending; whole: T of each; variable: those of the fastest, and the last is earlier."""
    rng = np.random.default_rng(seed)
    times, num_steps = np.exp(rng.normal(0, 2, rng.integers(1, 8))), int(rng.integers(1, 20))
    whole, variable = (arrivals_s(times, num_steps, whole=whole) for whole in (True, False))
    for ends in (whole, variable):
        assert len(ends) == num_steps * len(times)
        assert (np.diff(ends) >= 0).all()
    assert whole[-1] == times.max() * num_steps
    assert variable[-1] <= whole[-1]
    assert (variable <= whole).all()


def together(num_ranks: int, times: Times, learn_s: float) -> list[Group]:
    """Ranks in one process that share their counters; what they exchange is given, [R, N] and LT of each."""
    between = Apart()
    groups = [group_of(rank, num_ranks, between) for rank in range(num_ranks)]
    for group in groups:
        vars(group)["gather"] = lambda _: np.column_stack((times, np.full(num_ranks, learn_s)))
    return groups


def a_second_at_each_look() -> Callable[[], float]:
    """A clock on which every pause between two counts is over when a rank looks again."""
    seconds = itertools.count()
    return lambda: float(next(seconds))


def step(rollout: Rollout, *envs: int) -> None:
    """Has environments take a step."""
    rollout.start(np.array(envs))
    rollout.finish(np.array(envs))


def test_nothing_is_planned_without_times() -> None:
    """Before the first learning phase nothing is known: all steps are collected, and nobody counts."""
    rollout, group = VariableRollout(2, 8), Group(ALONE)
    monitor = open_monitor(Optimal(), group, rollout, 4)
    monitor.begin(np.full(2, np.nan), 0.0)
    for _ in range(4):
        assert not monitor.should_stop(rollout)
        step(rollout, 0, 1)
    monitor.finished(rollout)
    statistics = monitor.statistics()
    assert statistics["preempt/planned_steps"] == statistics["preempt/steps"] == 8
    assert np.isnan(statistics["preempt/planned_s"])
    assert statistics["preempt/collect_s"] >= 0
    assert group._counts == {}


def test_ranks_count_more_often_towards_the_planned_end() -> None:
    """The pause shrinks with what is left, and after the planned end it stays at 1/256 of the plan."""
    pauses = [pause_s(elapsed, 16.0) for elapsed in (0.0, 8.0, 12.0, 14.0, 15.0, 15.9, 16.0, 40.0)]
    assert pauses == [1.0, 1.0, 0.5, 0.25, 0.125, 0.0625, 0.0625, 0.0625]


@pytest.mark.parametrize("iteration", [0, 3])
def test_stops_at_s_as_counted_over_all_ranks(iteration: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank stops when all ranks together have S steps, and it has one for each environment on average."""
    monkeypatch.setattr(time, "perf_counter", a_second_at_each_look())
    times = np.array([[1.0, 1.0], [100.0, 100.0]])
    groups = together(2, times, learn_s=0.5)
    rollouts = [VariableRollout(2, 8) for _ in groups]
    fast, slow = (open_monitor(Optimal(), group, rollout, 4) for group, rollout in zip(groups, rollouts, strict=True))
    for _ in range(iteration + 1):
        fast.begin(times[0], 0.5)
        slow.begin(times[1], 0.5)
    assert plan(times, 0.5, 4, whole=False) == Plan(8, 4.0)
    for _ in range(3):
        step(rollouts[0], 0, 1)
        assert not fast.should_stop(rollouts[0])
        assert not slow.should_stop(rollouts[1])
    step(rollouts[0], 0, 1)
    fast.finished(rollouts[0])
    step(rollouts[1], 0)
    assert not slow.should_stop(rollouts[1]), "with nothing of its own it would have nothing to learn"
    step(rollouts[1], 0)
    assert slow.should_stop(rollouts[1])
    slow.finished(rollouts[1])
    for monitor in (fast, slow):
        statistics = monitor.statistics()
        assert (statistics["preempt/planned_steps"], statistics["preempt/planned_s"]) == (8, 4.0)
        assert statistics["preempt/steps"] == 10


def test_steps_beyond_a_full_rollout_count_with_the_next() -> None:
    """A step that ends together with the last one of a rollout is not among the S of that rollout, but of the next."""
    times = np.array([[1.0, 1.0], [100.0, 100.0]])
    group, *_ = together(2, times, learn_s=0.5)
    rollout = VariableRollout(2, 8)
    monitor = open_monitor(Optimal(), group, rollout, 4)
    monitor.begin(times[0], 0.5)
    for _ in range(7):
        step(rollout, 0)
    step(rollout, 0, 1)
    assert rollout.num_samples == 9
    monitor.finished(rollout)
    assert monitor.statistics()["preempt/steps"] == 8
    rollout.take().tolist()
    monitor.begin(times[0], 0.5)
    monitor.should_stop(rollout)
    assert monitor.statistics()["preempt/steps"] == 1


def test_an_environment_without_a_step_counts_as_the_slowest() -> None:
    """Where no step of an environment has ended in the rollout before, it is taken to be as slow as the slowest."""
    times = np.array([[1.0, np.nan], [5.0, 2.0]])
    group, *_ = together(2, times, learn_s=3.0)
    monitor = open_monitor(Optimal(), group, VariableRollout(2, 8), 4)
    monitor.begin(times[0], 3.0)
    expected = plan(np.array([[1.0, 5.0], [5.0, 2.0]]), 3.0, 4, whole=False)
    assert monitor.statistics()["preempt/planned_steps"] == expected.num_samples


def test_fixed_rollouts_are_planned_whole() -> None:
    """With `Fixed` rollouts S is one at which some rank completes its own."""
    times = np.array([[1.0, 3.0], [40.0, 2.0]])
    for rollout, whole in ((FixedRollout(2, 4), True), (VariableRollout(2, 8), False)):
        group, *_ = together(2, times, learn_s=3.0)
        monitor = open_monitor(Optimal(), group, rollout, 4)
        monitor.begin(times[0], 3.0)
        expected = plan(times, 3.0, 4, whole=whole)
        assert monitor.statistics()["preempt/planned_s"] == expected.seconds


@pytest.mark.parametrize("hides_learning", [False, True])
def test_learning_beside_collecting_is_planned_as_such(hides_learning: bool) -> None:
    """The monitor plans with a learning time that costs, or that hides."""
    times = np.array([[1.0, 3.0], [40.0, 2.0]])
    group, *_ = together(2, times, learn_s=9.0)
    monitor = open_monitor(Optimal(), group, VariableRollout(2, 8), 4, hides_learning=hides_learning)
    monitor.begin(times[0], 9.0)
    expected = plan(times, 9.0, 4, whole=False, hides_learning=hides_learning)
    assert expected != plan(times, 9.0, 4, whole=False, hides_learning=not hides_learning)
    assert monitor.statistics()["preempt/planned_s"] == expected.seconds


NUM_ITERATIONS = 20


def count_together(folder: Path) -> None:
    """On each of 3 ranks: plan, collect S steps between them, again and again; leaves what each was told."""
    place = Place.from_environment()
    group, rollout = Group(place), VariableRollout(1, 8)
    assert group._transport is not None
    vars(time)["perf_counter"] = a_second_at_each_look()
    monitor = open_monitor(Optimal(), group, rollout, 8)
    told, num_keys, stopped = [], [], True
    for _ in range(NUM_ITERATIONS):
        monitor.begin(np.array([1.0 if place.rank < 2 else 100.0]), 0.5)
        step(rollout, 0)
        stopped_at_once = monitor.should_stop(rollout)
        group.sum(np.zeros(1))
        if place.rank < 2:
            for _ in range(7):
                step(rollout, 0)
            monitor.finished(rollout)
        group.sum(np.zeros(1))
        if place.rank == 2:
            stopped = monitor.should_stop(rollout)
            monitor.finished(rollout)
        group.sum(np.zeros(1))
        statistics = monitor.statistics()
        told.append([stopped_at_once, stopped, statistics["preempt/planned_steps"], statistics["preempt/steps"]])
        num_keys.append(group._transport.store.num_keys())
        group.sum(np.zeros(1))
        rollout.release(slot for _, slot in rollout.take().tolist())
    (folder / f"rank{place.rank}.json").write_text(json.dumps([told, num_keys]))
    group.close()


def test_ranks_come_to_the_same_s_and_the_same_count(tmp_path: Path) -> None:
    """Real ranks exchange their times and LT, plan alike, count together, see no old count, and leave no old keys."""
    run_ranks(count_together, 3, tmp_path)
    for rank in range(3):
        told, num_keys = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert told == [[False, True, 16, 17]] * NUM_ITERATIONS
        assert len(set(num_keys[5:])) == 1
