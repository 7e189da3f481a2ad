from __future__ import annotations

import numpy as np
import pytest

from rlbench.systems.choices.rollout import Fixed
from rlbench.systems.engine.rollouts.opening import open_rollout
from rlbench.systems.engine.rollouts.rollout import FixedRollout, runs_of
from tests.systems.engine.rollouts.driving import Driver

ENVS = np.arange(2)


def test_slots_by_hand() -> None:
    """Each step has a slot of its own, and its observation's successor is where the environment stands afterwards."""
    rollout = open_rollout(Fixed(), num_envs=2, num_steps=3, ahead=0)
    at = [rollout.at.tolist()]
    for _ in range(3):
        nexts = rollout.start(ENVS)
        assert rollout.in_flight.all()
        assert not rollout.acted[rollout.at].any(), "nothing is chosen yet"
        rollout.note_acted(rollout.at)
        rollout.finish(ENVS)
        assert rollout.at.tolist() == nexts.tolist()
        at.append(rollout.at.tolist())
    assert at == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert rollout.is_full
    assert rollout.num_samples == 6
    runs, envs = runs_of(rollout.take())
    assert [run.tolist() for run in runs] == [[0, 2, 4], [1, 3, 5]]
    assert envs == [0, 1]
    assert rollout.follow[[0, 2, 4]].tolist() == [2, 4, 6]
    assert rollout.acted[:8].tolist() == [True] * 6 + [False] * 2


def test_environments_advance_alone() -> None:
    """Environments need not be in step: each has its own count, and may not act beyond T."""
    rollout = FixedRollout(num_envs=2, target_steps=3)
    for _ in range(3):
        assert rollout.may_act().all()
        rollout.start(ENVS[1:])
        rollout.finish(ENVS[1:])
    assert rollout.may_act().tolist() == [True, False]
    assert rollout.at[0] == 0
    assert not rollout.is_full
    assert (rollout.num_samples, rollout.num_steps) == (3, 0)
    runs, envs = runs_of(rollout.take())
    assert [run.tolist() for run in runs] == [[1, 2, 3]]
    assert envs == [1]


@pytest.mark.parametrize("num_steps", [2, 3])
def test_begins_where_it_ended(num_steps: int) -> None:
    """The next rollout begins with the slot at which an environment stands, also after a cut one; nothing is moved."""
    rollout = FixedRollout(num_envs=2, target_steps=3)
    for _ in range(num_steps):
        rollout.start(ENVS)
        rollout.finish(ENVS)
    stood = rollout.at.tolist()
    taken = rollout.take().tolist()
    assert len(taken) == 2 * num_steps
    assert rollout.num_samples == 0
    assert rollout.at.tolist() == stood
    assert not rollout.acted[stood].any(), "what is chosen there belongs to the next rollout"
    rollout.start(ENVS)
    rollout.finish(ENVS)
    assert [slot for _, slot in rollout.take().tolist()] == stood


def test_a_step_in_flight_belongs_to_the_next_rollout() -> None:
    """A cut rollout leaves out what has not ended; it ends, and is counted, in the next one."""
    rollout = FixedRollout(num_envs=2, target_steps=3)
    rollout.start(ENVS)
    rollout.finish(ENVS[:1])
    assert rollout.take().tolist() == [[0, 0]]
    assert rollout.in_flight.tolist() == [False, True]
    assert rollout.may_act().tolist() == [True, True], "one of its three steps is in flight"
    rollout.finish(ENVS[1:])
    for _ in range(2):
        rollout.start(ENVS[1:])
        assert rollout.may_act()[1] == (rollout.taken[1] < 2), "the third step is the last, also before it has ended"
        rollout.finish(ENVS[1:])
    assert [env for env, _ in rollout.take().tolist()] == [1, 1, 1]


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_exactly_t_steps_each_in_any_order(seed: int, ahead: int) -> None:
    """Over many rollouts: T steps of each environment, all in order and once; slots suffice, and none is used twice."""
    num_envs, num_steps = 5, 7
    driver = Driver(open_rollout(Fixed(), num_envs, num_steps, ahead=ahead), seed)
    held: list[list[int]] = []
    for number in range(60):
        cut = int(driver.rng.integers(1, num_envs * num_steps)) if number % 3 == 2 else None
        driver.fill(cut)
        is_full = driver.rollout.is_full
        steps = driver.rollout.take().tolist()
        driver.check_taken(steps)
        if is_full:
            assert sorted(env for env, _ in steps) == np.repeat(range(num_envs), num_steps).tolist()
        held.append([slot for _, slot in steps])
        if len(held) > ahead:
            driver.release(held.pop(0))
    assert driver.num_taken == driver.num_finished
    assert driver.most_in_use > num_envs * num_steps


def test_a_burst_takes_what_is_missing() -> None:
    """An environment that plays by itself gets the rest of its T steps; what it did not play is free again."""
    driver = Driver(FixedRollout(num_envs=1, target_steps=4), seed=0)
    for _ in range(30):
        assert driver.rollout.burst(0) == 4
        driver.start_burst(0)
        assert driver.rollout.in_flight.all()
        driver.finish_burst(0, 1)
        assert driver.rollout.burst(0) == 3
        driver.start_burst(0)
        driver.finish_burst(0, 3)
        assert driver.rollout.is_full
        steps = driver.rollout.take().tolist()
        driver.check_taken(steps)
        driver.release(slot for _, slot in steps)
    assert driver.num_taken == 120


def test_runs_keep_the_order_of_time() -> None:
    """Steps of several environments, in the order in which they ended, become one run each."""
    runs, envs = runs_of(np.array([(2, 10), (0, 11), (2, 3), (0, 1), (2, 7)]))
    assert envs == [0, 2]
    assert [run.tolist() for run in runs] == [[11, 1], [10, 3, 7]]


def test_steps_of_the_scenario_or_its_own() -> None:
    """T is the scenario's unless it is set; a rollout is T x N."""
    assert Fixed().target(4, 32) == 128
    assert Fixed().steps(128) == 128
    assert Fixed(num_steps=32).steps(128) == 32
    with pytest.raises(ValueError, match=r"rollout\.num_steps=-1: must be at least 1, or 0 for the scenario's"):
        Fixed(num_steps=-1)
