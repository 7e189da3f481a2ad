from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from systems.engine.rollout import Experience
from systems.engine.trajectories import (
    MOST_BATCHES_WAITING,
    QuotaRollout,
    StreamRollout,
    Trajectories,
    stream_limit,
)
from tests.systems.engine.driving import Driver

LIMIT_S = 60.0
"""A thread that has not ended by then never will."""


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(("num_envs", "batch"), [(1, 1), (3, 7), (5, 40), (6, 6)])
def test_a_quota_is_exact_and_leaves_nothing_in_flight(num_envs: int, batch: int, ahead: int) -> None:
    """Every batch has exactly its env steps, and then nothing is under way, whatever order steps end in."""
    driver = Driver(Trajectories(batch=batch).open(num_envs, 4, ahead=ahead), seed=batch)
    held = []
    for number in range(1, 101):
        driver.fill()
        assert not driver.rollout.in_flight.any()
        steps = driver.rollout.take()
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
        steps = driver.rollout.take()
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
    ],
)
def test_limit_by_hand(
    batch: int, num_envs: int, num_steps: int, max_lag: int, updates: int, expected: int
) -> None:
    """What may wait follows from the lag (Sample Factory section 3.4), from one batch to `MOST_BATCHES_WAITING`."""
    assert stream_limit(batch, num_envs, num_steps, max_lag, updates) == expected


@pytest.mark.parametrize("seed", range(200))
def test_limit_keeps_the_lag(seed: int) -> None:
    """Whole batches ahead of a sample, times updates of each, stay within `max_lag` where a batch at all does."""
    rng = np.random.default_rng(seed)
    batch, num_envs, num_steps, max_lag, updates = (int(rng.integers(1, most)) for most in (300, 20, 40, 30, 5))
    limit = stream_limit(batch, num_envs, num_steps, max_lag, updates)
    assert batch <= limit <= MOST_BATCHES_WAITING * batch
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
    experience, num_discarded = stream.take_batch(versions, 2)
    assert experience is not None
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
    assert stream.num_samples == 2


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Begins something."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_stop_frees_a_blocked_take() -> None:
    """A learner that waits for a batch gets nothing when the stream is stopped; what it had taken is in flight again."""
    stream, driver = stream_for(2, 3, batch=100, limit=200)
    for _ in range(3):
        driver.start([0, 1])
        driver.finish([0, 1])
    got: list[tuple[Experience | None, int]] = []
    learner = in_thread(lambda: got.append(stream.take_batch(versions_of(stream), 0)))
    while stream.num_samples:  # the learner takes both trajectories, and waits for more
        assert learner.is_alive()
    stream.stop()
    learner.join(LIMIT_S)
    assert got == [(None, 0)]
    assert stream.num_samples == 6
    assert stream.is_full
    assert not stream.may_act().any()
    assert [env for env, _ in stream._whole] == [0, 1], "in the order in which they came"


class Ends:
    """What a sampler's and a learner's thread have done to one stream."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.num_envs, self.num_steps, self.batch = (int(rng.integers(1, most)) for most in (6, 7, 30))
        limit = max(self.batch, int(rng.integers(1, 60)))
        self.stream = StreamRollout(self.num_envs, self.num_steps, self.batch, limit)
        self.stream.on_room = lambda: self.woken.set()
        self.woken = threading.Event()
        self.versions = np.zeros(len(self.stream.acted), np.int64)
        self.numbers = np.zeros(len(self.stream.acted), np.int64)
        self.version = self.num_collected = self.num_learned = self.num_discarded = 0
        self.failures: list[BaseException] = []
        self.plays = bool(seed % 2)
        self._rng = np.random.default_rng(seed + 1000)
        self._counts = [0] * self.num_envs
        self._lengths: dict[int, int] = {}

    def sample(self) -> None:
        """The sampler's thread: random environments begin and end steps until the stream is stopped."""
        stream, rng = self.stream, self._rng
        try:
            while not stream.is_full:
                waiting = np.flatnonzero(~stream.in_flight & stream.may_act())
                if len(waiting):
                    self._start(rng.permutation(waiting)[: rng.integers(1, len(waiting) + 1)])
                elif not stream.in_flight.any():
                    assert self.woken.wait(LIMIT_S), "nobody said that there is room"
                    self.woken.clear()
                flying = np.flatnonzero(stream.in_flight)
                self._finish(rng.permutation(flying)[: rng.integers(len(flying) + 1)])
            self._finish(np.flatnonzero(stream.in_flight))
        except BaseException as failure:  # noqa: BLE001  the test raises it
            self.failures.append(failure)
            stream.stop()

    def _note(self, env: int, slot: int) -> None:
        self.versions[slot], self.numbers[slot] = self.version, self._counts[env]
        self._counts[env] += 1
        self.num_collected += 1

    def _start(self, envs: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        if self.plays:
            for env in envs.tolist():
                self._lengths[env] = len(self.stream.start_burst(env, self.stream.burst(env))) - 1
        else:
            self.stream.start(envs)

    def _finish(self, envs: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        for env in envs.tolist():
            if self.plays:
                length = self._lengths[env]
                played = length if self._rng.random() < 0.8 else int(self._rng.integers(length + 1))
                for slot in self.stream._bursts[env][:played].tolist():
                    self._note(env, slot)
                self.stream.finish_burst(env, played)
            else:
                self._note(env, int(self.stream.at[env]))
                self.stream.finish(np.array([env]))

    def learn(self, num_batches: int, max_lag: int) -> None:
        """The learner's: takes batches, checks them, gives their slots back; then stops the stream."""
        next_numbers = [0] * self.num_envs
        for _ in range(num_batches):
            experience, num_discarded = self.stream.take_batch(self.versions, self.version - max_lag)
            self.num_discarded += num_discarded
            assert experience is not None, self.failures
            assert experience.num_samples == self.batch
            for env, run in zip(experience.envs, experience.runs, strict=True):
                numbers = self.numbers[run]
                assert (np.diff(numbers) == 1).all(), "consecutive steps of one environment"
                assert numbers[0] >= next_numbers[env], "none is learned twice, and none before an older one"
                next_numbers[env] = int(numbers[-1]) + 1
                assert (self.versions[run] >= self.version - max_lag).all()
            self.num_learned += experience.num_samples
            self.version += int(self._lag_rng.integers(1, 4))
            self.stream.release(np.concatenate(experience.runs).tolist())
        self.stream.stop()
        self.woken.set()

    @property
    def _lag_rng(self) -> np.random.Generator:
        return np.random.default_rng(self.version + 5)


@pytest.mark.parametrize("seed", range(16))
def test_two_threads_conserve_every_sample(seed: int) -> None:
    """Under random schedules: collected = learned + discarded + in flight, each batch exact, each step learned once."""
    ends = Ends(seed)
    sampler = in_thread(ends.sample)
    try:
        ends.learn(num_batches=60, max_lag=3)
    finally:
        ends.stream.stop()
        ends.woken.set()
        sampler.join(LIMIT_S)
    assert not sampler.is_alive()
    assert ends.failures == []
    assert ends.num_collected == ends.num_learned + ends.num_discarded + ends.stream.num_samples
    assert ends.num_learned == 60 * ends.batch


def test_discarded_samples_are_conserved() -> None:
    """With no lag allowed samples are discarded, and collected = learned + discarded + in flight holds all the same."""
    found = 0
    for seed in range(4):
        ends = Ends(seed)
        sampler = in_thread(ends.sample)
        ends.learn(num_batches=30, max_lag=0)
        sampler.join(LIMIT_S)
        found += ends.num_discarded
        assert ends.num_collected == ends.num_learned + ends.num_discarded + ends.stream.num_samples
    assert found > 0


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
