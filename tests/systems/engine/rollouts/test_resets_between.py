"""Rollouts of environments in batches, some of whose steps only begin an episode: they are nobody's samples."""

from __future__ import annotations

import numpy as np
import pytest

from rlbench.systems.choices.rollout import Fixed, Variable
from rlbench.systems.engine.rollouts.monitors import has_enough
from rlbench.systems.engine.rollouts.opening import open_rollout
from rlbench.systems.engine.rollouts.rollout import FixedRollout, Rollout, VariableRollout
from rlbench.systems.engine.rollouts.trajectories import StreamRollout
from tests.systems.engine.rollouts.driving import Driver

NUM_ENVS, NUM_STEPS = 6, 7
ENDS = (0.1, 0.5, 1.0)
"""In the last, every second step only begins an episode."""


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("of_batch", [1, 2, 6])
@pytest.mark.parametrize("choice", [Fixed(), Variable()], ids=["fixed", "variable"])
def test_rollouts_lose_nothing(choice: Fixed | Variable, of_batch: int, ahead: int, ends: float) -> None:
    """Over many rollouts, whole and cut: all steps but those that began an episode are learned, in order and once.

    Slots suffice and none is used twice.
    """
    driver = Driver(open_rollout(choice, NUM_ENVS, NUM_STEPS, ahead=ahead), of_batch, of_batch=of_batch, ends=ends)
    held: list[list[int]] = []
    for number in range(60):
        cut = int(driver.rng.integers(1, NUM_ENVS * NUM_STEPS // 2)) if number % 3 == 2 else None
        driver.fill(cut)
        assert cut is not None or driver.rollout.is_full
        unlearned = driver.rollout.waiting.sum()
        steps = driver.rollout.take().tolist()
        assert driver.rollout.num_samples == unlearned - len(steps)
        driver.check_taken(steps)
        held.append([slot for _, slot in steps])
        if len(held) > ahead:
            driver.release(held.pop(0))
    assert driver.num_taken + driver.rollout.num_samples == driver.num_finished
    assert driver.num_skipped > 10


@pytest.mark.parametrize("of_batch", [1, 2])
def test_a_fixed_rollout_counts_what_it_skips(of_batch: int) -> None:
    """T steps of each environment, of which some began an episode, so that the environments stay together.

    With T = 2 each environment has a sample, whatever its episodes are.
    """
    driver = Driver(FixedRollout(NUM_ENVS, 2), seed=0, of_batch=of_batch, ends=0.7)
    for _ in range(50):
        finished, skipped = driver.num_finished, driver.num_skipped
        driver.fill()
        assert not driver.rollout.may_act().any()
        assert driver.num_finished - finished + driver.num_skipped - skipped == 2 * NUM_ENVS
        steps = driver.rollout.take().tolist()
        assert {env for env, _ in steps} == set(range(NUM_ENVS))
        driver.check_taken(steps)
        driver.release(slot for _, slot in steps)


@pytest.mark.parametrize("kind", [FixedRollout, VariableRollout])
def test_a_rollout_of_resets_alone_is_not_cut(kind: type[FixedRollout | VariableRollout]) -> None:
    """What only began episodes is nothing to learn from: other ranks wait for a sample of each environment."""
    rollout: Rollout = kind(2, 8)
    envs = np.arange(2)
    rollout.start(envs)
    rollout.skip(envs)
    assert rollout.num_steps == rollout.num_samples == 0
    assert not has_enough(rollout)
    rollout.start(envs)
    rollout.finish(envs)
    assert rollout.num_steps == 1
    assert has_enough(rollout)
    rollout.take()
    assert rollout.num_steps == 0


def test_a_skipped_slot_is_free() -> None:
    """The slot in which the action was chosen that nobody applied; the environment stands in the next one."""
    rollout = FixedRollout(num_envs=1, target_steps=3)
    envs = np.arange(1)
    nexts = rollout.start(envs)
    rollout.note_acted(rollout.at[envs])
    rollout.skip(envs)
    assert (rollout.at.tolist(), rollout.in_flight.tolist()) == (nexts.tolist(), [False])
    assert not rollout.acted[0]
    assert {int(rollout.start(envs)[0]) for _ in range(rollout.acted.size - 1)} >= {0}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("of_batch", [1, 2, 6])
def test_a_stream_loses_nothing(of_batch: int, ends: float) -> None:
    """Trajectories have T samples however many steps lie between; slots suffice.

    Environments of a batch, whose trajectories end at different times then, are held back and freed as a whole.
    """
    stream = StreamRollout(NUM_ENVS, trajectory_steps=4, batch=24, limit=24)
    driver = Driver(stream, seed=of_batch, of_batch=of_batch, ends=ends)
    versions = np.zeros(len(stream.acted), np.int64)
    for _ in range(40):
        while True:  # until the queue holds all of them back
            waiting, flying = driver.may_start(), np.flatnonzero(stream.in_flight)
            if not waiting and not len(flying):
                break
            if waiting and (not len(flying) or driver.rng.random() < 0.6):
                driver.start(driver.some(waiting))
            else:
                driver.finish(driver.some(flying))
        for _ in range(int(driver.rng.integers(1, 3))):
            if stream.num_samples - stream._lengths.sum() < stream.batch:
                break
            experience, discarded = stream.take_batch(versions, 0)
            assert experience is not None
            assert (experience.num_samples, discarded) == (stream.batch, 0)
            driver.check_taken(
                (env, slot) for env, run in zip(experience.envs, experience.runs, strict=True) for slot in run.tolist()
            )
            driver.release(slot for run in experience.runs for slot in run.tolist())
    assert driver.num_taken + stream.num_samples == driver.num_finished
    assert driver.num_skipped > 10
    assert stream.waiting.sum() == stream.num_samples
