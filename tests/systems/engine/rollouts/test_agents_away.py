"""Rollouts of environments with several agents, of whom some are away, perhaps for whole rollouts, but never all."""

from __future__ import annotations

import numpy as np
import pytest

from rlbench.systems.choices.rollout import Fixed, Variable
from rlbench.systems.engine.rollouts.monitors import has_enough
from rlbench.systems.engine.rollouts.opening import open_rollout
from rlbench.systems.engine.rollouts.rollout import FixedRollout
from rlbench.systems.engine.rollouts.stale import StaleFill
from rlbench.systems.engine.rollouts.trajectories import StreamRollout
from tests.systems.engine.rollouts.driving import Driver

AGENTS, NUM_ENVS = 3, 2
NUM_ROWS = AGENTS * NUM_ENVS
COMES = 0.05


@pytest.mark.parametrize("num_steps", [1, 2, 7])
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("choice", [Fixed(), Variable()], ids=["fixed", "variable"])
def test_rollouts_lose_nothing(choice: Fixed | Variable, ahead: int, num_steps: int) -> None:
    """Over many rollouts, whole and cut: all agent steps are learned, in order and once.

    Slots suffice and none is used twice. Some agents have no sample in a whole rollout; each environment has.
    """
    rollout = open_rollout(choice, NUM_ROWS, num_steps, ahead=ahead, agents=AGENTS)
    driver = Driver(rollout, seed=num_steps, of_batch=AGENTS, ends=0.4, comes=COMES)
    held: list[list[int]] = []
    num_missing = 0
    for number in range(90):
        cut = int(driver.rng.integers(1, 1 + NUM_ROWS * num_steps // 2)) if number % 3 == 2 else None
        driver.fill(cut)
        assert cut is not None or rollout.is_full
        if isinstance(rollout, FixedRollout) and cut is None:
            assert rollout.num_steps == num_steps
            assert rollout.num_places == NUM_ROWS * num_steps
            assert rollout.num_samples >= NUM_ENVS * num_steps
        enough = has_enough(rollout)
        steps = rollout.take().tolist()
        rows = {row for row, _ in steps}
        if isinstance(rollout, FixedRollout) and enough:
            assert {row // AGENTS for row in rows} == set(range(NUM_ENVS))
        num_missing += cut is None and len(rows) < NUM_ROWS
        driver.check_taken(steps)
        held.append([slot for _, slot in steps])
        if len(held) > ahead:
            driver.release(held.pop(0))
    assert num_missing > 5 or num_steps > 2
    assert driver.num_taken + rollout.num_samples == driver.num_finished


def test_a_rank_is_cut_by_the_steps_of_its_environments() -> None:
    """Agents that never come keep no rank from being cut; an environment that has made no step does."""
    rollout = FixedRollout(2 * AGENTS, 8, agents=AGENTS)
    first, second = np.arange(AGENTS), AGENTS + np.arange(AGENTS)
    for step in range(2):
        rollout.start(first)
        rollout.skip(first[1:])
        rollout.finish(first[:1])
        assert (rollout.num_steps, rollout.num_samples, rollout.num_places) == (0, 1 + step, AGENTS * (1 + step))
        assert not has_enough(rollout)
    rollout.start(second)
    rollout.skip(second[:2])
    rollout.finish(second[2:])
    assert (rollout.num_steps, rollout.num_samples) == (1, 3)
    assert has_enough(rollout)


def test_a_cut_rollout_is_filled_with_what_there_was() -> None:
    """A stale fill keeps T samples of each agent at most, also where whole rollouts have fewer; slots suffice."""
    rollout = open_rollout(Fixed(), NUM_ROWS, 4, ahead=1, agents=AGENTS)
    driver = Driver(rollout, seed=0, of_batch=AGENTS, ends=0.4, comes=COMES)
    stale, num_stale = StaleFill(NUM_ROWS * 4), 0
    for number in range(60):
        driver.fill(4 if number % 2 else None)
        is_whole, steps = rollout.is_full, rollout.take()
        driver.check_taken(steps.tolist())
        experience, freed = stale.fill(steps, is_whole=is_whole)
        driver.release(freed)
        assert experience.num_samples - experience.num_stale == len(steps)
        assert experience.num_stale == 0 or not is_whole
        assert experience.num_samples <= NUM_ROWS * 4
        num_stale += experience.num_stale
    assert num_stale > 60


def test_a_stream_loses_nothing() -> None:
    """Trajectories have T samples of an agent, however long it is away in between; slots suffice."""
    stream = StreamRollout(NUM_ROWS, trajectory_steps=4, batch=24, limit=24)
    driver = Driver(stream, seed=1, of_batch=AGENTS, ends=0.4, comes=COMES)
    versions = np.zeros(len(stream.acted), np.int64)
    num_taken = 0
    for _ in range(60):
        while stream.num_samples - stream._lengths.sum() < stream.batch:
            waiting, flying = driver.may_start(), np.flatnonzero(stream.in_flight)
            assert waiting or len(flying), "it is stuck without a batch"
            if waiting and (not len(flying) or driver.rng.random() < 0.6):
                driver.start(driver.some(waiting))
            else:
                driver.finish(driver.some(flying))
        experience, _ = stream.take_batch(versions, 0)
        assert experience is not None
        num_taken += experience.num_samples
        driver.check_taken(
            (row, slot) for row, run in zip(experience.envs, experience.runs, strict=True) for slot in run.tolist()
        )
        driver.release(slot for run in experience.runs for slot in run.tolist())
    assert num_taken == 60 * 24
    assert num_taken + stream.num_samples == driver.num_finished
