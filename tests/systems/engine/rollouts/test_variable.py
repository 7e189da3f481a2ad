from __future__ import annotations

import numpy as np
import pytest

from rlbench.systems.choices.rollout import Variable
from rlbench.systems.engine.rollouts.opening import open_rollout
from rlbench.systems.engine.rollouts.stale import StaleFill
from tests.systems.engine.rollouts.driving import Driver, Step

NUM_ENVS, NUM_STEPS = 6, 5
TARGET = NUM_ENVS * NUM_STEPS
SEEDS = range(5)


def driver_for(seed: int, ahead: int) -> Driver:
    """A driver of a variable rollout."""
    return Driver(open_rollout(Variable(), NUM_ENVS, NUM_STEPS, ahead=ahead), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_always_t_times_n_however_they_are_spread(seed: int) -> None:
    """Every rollout has T x N steps in total, from whichever environments; none is lost, and none learned twice."""
    driver = driver_for(seed, ahead=0)
    spread = set()
    for _ in range(100):
        driver.fill()
        steps = driver.rollout.take().tolist()
        assert len(steps) == TARGET
        driver.check_taken(steps)
        spread.add(tuple(np.bincount([env for env, _ in steps], minlength=NUM_ENVS)))
        driver.release(slot for _, slot in steps)
    assert driver.num_taken == 100 * TARGET
    assert driver.num_finished == driver.num_taken + driver.rollout.num_samples
    assert len(spread) > 50, "environments are held to no number of steps"


def test_one_environment_may_take_them_all() -> None:
    """If the others never answer, the fastest takes T x N steps, and the others' steps stay in flight."""
    driver = driver_for(0, ahead=0)
    others = list(range(1, NUM_ENVS))
    driver.start(others)
    for _ in range(TARGET):
        driver.start([0])
        driver.finish([0])
    steps = driver.rollout.take().tolist()
    assert [env for env, _ in steps] == [0] * TARGET
    driver.check_taken(steps)
    driver.release(slot for _, slot in steps)
    assert driver.rollout.in_flight[others].all()
    driver.finish(others)
    assert driver.rollout.num_samples == len(others), "they belong to the next rollout"
    assert np.flatnonzero(driver.rollout.waiting).tolist() == sorted(others)


def test_what_ends_after_the_rollout_is_full_belongs_to_the_next() -> None:
    """Steps that end together with the last one, and those in flight, are the first of the next rollout, in order."""
    driver = driver_for(0, ahead=0)
    for _ in range(NUM_STEPS - 1):
        driver.start(range(NUM_ENVS))
        driver.finish(range(NUM_ENVS))
    driver.start([0])
    driver.finish([0])
    driver.start(range(NUM_ENVS))
    driver.finish([3, 1, 5, 0, 2])  # the rollout lacks five
    driver.finish([4])
    assert driver.rollout.is_full
    assert driver.rollout.num_samples == TARGET + 1
    assert not driver.rollout.may_act().any()
    steps = driver.rollout.take().tolist()
    assert [env for env, _ in steps[-5:]] == [3, 1, 5, 0, 2]
    driver.check_taken(steps)
    assert driver.rollout.num_samples == 1
    assert [env for env, _ in driver.rollout.take().tolist()] == [4]


def test_a_cut_rollout_gives_what_there_is() -> None:
    """A preempted rollout has all that has ended; its number of steps for an environment is the mean."""
    driver = driver_for(3, ahead=0)
    driver.fill(until=2 * NUM_ENVS + 1)
    num_samples = driver.rollout.num_samples
    assert num_samples < TARGET
    assert driver.rollout.num_steps == num_samples // NUM_ENVS
    assert len(driver.rollout.take().tolist()) == num_samples


def release_later(driver: Driver, waiting: list[list[Step]], ahead: int) -> None:
    """Gives back what is not held any more."""
    while len(waiting) > ahead:
        driver.release(slot for _, slot in waiting.pop(0))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("ahead", "is_cut"), [(0, False), (0, True), (1, False), (1, True)])
def test_slots_are_enough_and_never_used_twice(seed: int, ahead: int, is_cut: bool) -> None:
    """However steps end, for 100 rollouts, with the one before still being learned when `ahead`, and some cut."""
    driver = driver_for(seed, ahead)
    waiting: list[list[Step]] = []
    for number in range(100):
        driver.fill(int(driver.rng.integers(1, TARGET)) if is_cut and number % 2 else None)
        waiting.append(driver.rollout.take().tolist())
        driver.check_taken(waiting[-1])
        release_later(driver, waiting, ahead)
    assert driver.most_in_use >= TARGET * (1 + ahead)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ahead", [0, 1])
def test_slots_are_enough_with_stale_fill(seed: int, ahead: int) -> None:
    """The buffer of older steps keeps one rollout's slots; what it lets go of is free, and nothing else."""
    driver = driver_for(seed, ahead=ahead + 1)
    stale = StaleFill(TARGET)
    for number in range(100):
        driver.fill(int(driver.rng.integers(1, TARGET)) if number % 3 else None)
        steps = driver.rollout.take().tolist()
        driver.check_taken(steps)
        experience, freed = stale.fill(np.array(steps))
        learned = set(np.concatenate(experience.runs).tolist())
        assert learned <= driver.in_use
        assert not learned & set(freed)
        driver.release(freed)


@pytest.mark.parametrize("ahead", [0, 1])
def test_slots_are_enough_in_the_worst_order(ahead: int) -> None:
    """All environments end a step together when one is missing, again and again, with all that may be held held."""
    driver = driver_for(0, ahead)
    waiting: list[list[Step]] = []
    for _ in range(20):
        flying = set(np.flatnonzero(driver.rollout.in_flight).tolist())
        driver.start([env for env in range(NUM_ENVS) if env not in flying])
        while driver.rollout.num_samples < TARGET - 1:
            driver.finish([0])
            driver.start([0])
        driver.finish(range(NUM_ENVS))
        assert driver.rollout.num_samples == TARGET - 1 + NUM_ENVS
        waiting.append(driver.rollout.take().tolist())
        driver.check_taken(waiting[-1])
        release_later(driver, waiting, ahead)
    assert driver.most_in_use == TARGET * (1 + ahead) - 1 + 2 * NUM_ENVS
