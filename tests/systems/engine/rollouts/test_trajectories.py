from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.systems.choices.rollout import MOST_BATCHES_WAITING, Trajectories, stream_limit
from rlbench.systems.engine.rollouts.opening import open_rollout
from rlbench.systems.engine.rollouts.rollout import Experience
from rlbench.systems.engine.rollouts.trajectories import QuotaRollout, StreamRollout
from tests.systems.engine.rollouts.driving import Driver

LIMIT_S = 60.0
"""A thread that has not ended by then never will."""


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(("num_envs", "batch"), [(1, 1), (3, 7), (5, 40), (6, 6)])
def test_a_quota_is_exact_and_leaves_nothing_in_flight(num_envs: int, batch: int, ahead: int) -> None:
    """Every batch has exactly its env steps, and then nothing is under way, whatever order steps end in."""
    driver = Driver(open_rollout(Trajectories(batch=batch), num_envs, 4, ahead=ahead), seed=batch)
    held = []
    for number in range(1, 101):
        driver.fill()
        assert not driver.rollout.in_flight.any()
        steps = driver.rollout.take().tolist()
        assert len(steps) == batch
        driver.check_taken(steps)
        held.append([slot for _, slot in steps])
        if len(held) > ahead:
            driver.release(held.pop(0))
        assert driver.num_finished == driver.num_taken == number * batch


def test_those_with_the_fewest_steps_go_first() -> None:
    """When there is room for two steps more, the two environments that have taken the fewest may act."""
    rollout = QuotaRollout(num_envs=4, trajectory_steps=8, batch=8)
    for envs in ([0, 1, 2, 3], [0, 2]):
        rollout.start(np.array(envs))
        rollout.finish(np.array(envs))
    assert rollout.may_act().tolist() == [False, True, False, True]


@pytest.mark.parametrize("seed", range(10))
def test_bursts_fill_a_quota_exactly(seed: int) -> None:
    """Where environments play by themselves, no more is begun than there is room for; a batch is exact all the same."""
    num_envs, num_steps, batch = 4, 5, 33
    driver = Driver(QuotaRollout(num_envs, num_steps, batch), seed)
    for number in range(1, 51):
        while not driver.rollout.is_full:
            for env in driver.may_start():
                if driver.rollout.burst(env) > 0:
                    driver.start_burst(env)
                    assert 1 <= driver.burst_length(env) <= num_steps
            flying = np.flatnonzero(driver.rollout.in_flight)
            env = int(driver.rng.choice(flying))
            length = driver.burst_length(env)
            stops_early = driver.rng.random() < 0.2
            driver.finish_burst(env, int(driver.rng.integers(length)) if stops_early else length)
        assert not driver.rollout.in_flight.any()
        steps = driver.rollout.take().tolist()
        assert len(steps) == batch
        driver.check_taken(steps)
        driver.release(slot for _, slot in steps)
        assert driver.num_finished == number * batch


@pytest.mark.parametrize(
    ("batch", "num_envs", "num_steps", "max_lag", "updates", "expected"),
    [
        (2048, 16, 32, 20, 1, 4096),  # two batches are enough for a learner that never waits
        (2048, 16, 32, 1, 1, 2048),  # less than a batch would never be learned
        (100, 10, 10, 2, 1, 100),
        (100, 10, 5, 2, 1, 150),
        (100, 10, 5, 2, 2, 100),
        (100, 10, 5, 20, 4, 200),
        (2048, 1728, 32, 1000, 1, 55_296),  # those that keep step with each other end their trajectories together
    ],
)
def test_limit_by_hand(batch: int, num_envs: int, num_steps: int, max_lag: int, updates: int, expected: int) -> None:
    """What may wait follows from the lag (Sample Factory section 3.4), from one batch to two batches, or N * T."""
    assert stream_limit(batch, num_envs, num_steps, max_lag, updates) == expected


@pytest.mark.parametrize("seed", range(200))
def test_limit_keeps_the_lag(seed: int) -> None:
    """Whole batches ahead of a sample, times updates of each, stay within `max_lag` where a batch at all does."""
    rng = np.random.default_rng(seed)
    batch, num_envs, num_steps, max_lag, updates = (int(rng.integers(1, most)) for most in (300, 20, 40, 30, 5))
    limit = stream_limit(batch, num_envs, num_steps, max_lag, updates)
    assert batch <= limit <= max(MOST_BATCHES_WAITING * batch, num_envs * num_steps)
    under_way = num_envs * num_steps
    if limit > batch:
        assert (limit + under_way) / batch * updates <= max_lag


def stream_for(num_envs: int, num_steps: int, batch: int, limit: int) -> tuple[StreamRollout, Driver]:
    """A stream, and its driver."""
    stream = StreamRollout(num_envs, num_steps, batch, limit)
    return stream, Driver(stream, seed=0)


def versions_of(stream: StreamRollout, version: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """All slots acted with one version."""
    return np.full(len(stream.acted), version)


@pytest.mark.parametrize("seed", range(5))
def test_a_learner_that_never_takes_holds_environments_back(seed: int) -> None:
    """The queue is bounded: at the limit none begins a trajectory, all end those they are in, and slots suffice."""
    num_envs, num_steps, batch, limit = 5, 4, 12, 20
    stream = StreamRollout(num_envs, num_steps, batch, limit)
    driver = Driver(stream, seed)
    while driver.may_start() or stream.in_flight.any():
        waiting, flying = driver.may_start(), np.flatnonzero(stream.in_flight)
        if waiting and (not len(flying) or driver.rng.random() < 0.7):
            driver.start([int(driver.rng.choice(waiting))])
        else:
            driver.finish([int(driver.rng.choice(flying))])
    assert limit <= stream.num_samples < limit + num_envs * num_steps
    assert stream.num_samples % num_steps == 0, "only whole trajectories wait"
    assert not stream.is_full


def test_in_the_worst_order_slots_suffice() -> None:
    """All environments begin a trajectory when one step is missing to the limit, with a batch being learned."""
    num_envs, num_steps, batch, limit = 4, 3, 6, 12
    stream, driver = stream_for(num_envs, num_steps, batch, limit)
    held: list[int] = []
    for _ in range(30):
        while may := driver.may_start():
            driver.start(may)
            driver.finish(may)
        experience, _ = stream.take_batch(versions_of(stream), 0)
        assert experience is not None
        driver.release(held)
        held = np.concatenate(experience.runs).tolist()
    assert driver.most_in_use > batch + limit


def test_room_wakes_the_sampler_once() -> None:
    """`on_room` is called when the learner brings the queue below its limit, and not when it was below."""
    stream, driver = stream_for(2, 4, batch=4, limit=8)
    calls: list[int] = []
    stream.on_room = lambda: calls.append(stream.num_samples)
    for _ in range(4):
        driver.start([0, 1])
        driver.finish([0, 1])
    assert not stream.may_act().any()
    stream.take_batch(versions_of(stream), 0)
    assert calls == [4]
    assert stream.may_act().all()
    stream.take_batch(versions_of(stream), 0)
    assert calls == [4]


def test_trajectories_that_have_begun_go_on() -> None:
    """While the queue is at its limit, an environment in the middle of a trajectory may act, others may not."""
    stream, driver = stream_for(2, 3, batch=3, limit=3)
    driver.start([1])
    driver.finish([1])
    for _ in range(3):
        driver.start([0])
        driver.finish([0])
    assert stream.may_act().tolist() == [False, True]
    assert stream.burst(1) == 2


def test_old_samples_are_discarded_and_counted() -> None:
    """Samples of versions below `oldest` are no part of a batch; the rest is exact, and their slots are free again."""
    stream, driver = stream_for(1, 4, batch=6, limit=100)
    versions = versions_of(stream)
    for number in range(12):  # three trajectories: versions 0 0 0 1, 1 1 2 2, 2 3 3 3
        slot = int(stream.at[0])
        driver.start([0])
        driver.finish([0])
        versions[slot] = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3][number]
    in_use = len(driver.in_use)
    told: list[tuple[int, list[int]]] = []

    def note(env: int, slots: NDArray[np.int64]) -> None:
        assert set(stream._free).isdisjoint(slots.tolist()), "nobody writes there yet"
        told.append((env, versions[slots].tolist()))

    stream.on_discard = note
    experience, num_discarded = stream.take_batch(versions, 2)
    assert experience is not None
    assert told == [(0, [0, 0, 0, 1]), (0, [1, 1])]
    assert num_discarded == 6
    assert [versions[run].tolist() for run in experience.runs] == [[2, 2], [2, 3, 3, 3]]
    assert experience.num_stale == 0
    free = set(stream._free)
    assert len(free & driver.in_use) == 6
    assert free.isdisjoint(np.concatenate(experience.runs).tolist())
    assert stream.num_samples == 0
    assert in_use == 13


def test_a_long_trajectory_is_shared_by_batches() -> None:
    """A batch is exact: what a trajectory has too many begins the next batch, with its environment and in order."""
    stream, driver = stream_for(2, 5, batch=4, limit=100)
    for _ in range(5):
        driver.start([0, 1])
        driver.finish([0, 1])
    seen = []
    for _ in range(2):
        experience, _ = stream.take_batch(versions_of(stream), 0)
        assert experience is not None
        assert experience.num_samples == 4
        driver.check_taken(
            (env, slot) for env, run in zip(experience.envs, experience.runs, strict=True) for slot in run.tolist()
        )
        seen.append(list(experience.envs))
    assert seen == [[0], [0, 1]]
    assert (stream.num_samples, stream.waiting.tolist()) == (2, [0, 2])


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Begins something."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_stop_frees_a_blocked_take() -> None:
    """A learner that waits gets nothing when the stream is stopped; what it had taken is in flight again."""
    stream, driver = stream_for(2, 3, batch=100, limit=200)
    for _ in range(3):
        driver.start([0, 1])
        driver.finish([0, 1])
    got: list[tuple[Experience | None, int]] = []
    learner = in_thread(lambda: got.append(stream.take_batch(versions_of(stream), 0)))
    waiting = iter(lambda: stream.num_samples, 0)
    assert all(learner.is_alive() for _ in waiting), "it takes both trajectories, and waits for more"
    stream.stop()
    learner.join(LIMIT_S)
    assert got == [(None, 0)]
    assert stream.num_samples == 6
    assert stream.is_full
    assert not stream.may_act().any()


def test_settings() -> None:
    """T and the batch are the scenario's unless they are set; less than nothing is refused."""
    assert Trajectories().steps(128) == 128
    assert Trajectories(num_steps=32).steps(128) == 32
    assert Trajectories().target(4, 32) == 128
    assert Trajectories(batch=50).target(4, 32) == 50
    with pytest.raises(ValueError, match=r"rollout\.batch=-1: must be at least 1, or 0 for T times the environments"):
        Trajectories(batch=-1)
    with pytest.raises(ValueError, match=r"rollout\.num_steps=-1: must be at least 1"):
        Trajectories(num_steps=-1)
