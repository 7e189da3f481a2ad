"""A stream between a sampler's and a learner's thread, under random schedules."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pytest

from rlbench.systems.engine.rollouts.trajectories import StreamRollout

LIMIT_S = 60.0
"""A thread that has not ended by then never will."""
Indices = npt.NDArray[np.int64]


class Ends:
    """What a sampler's and a learner's thread have done to one stream."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.num_envs, self.num_steps, self.batch = (int(rng.integers(1, most)) for most in (6, 7, 30))
        limit = max(self.batch, int(rng.integers(1, 60)))
        self.stream = StreamRollout(self.num_envs, self.num_steps, self.batch, limit)
        self.woken = threading.Event()
        self.stream.on_room = self.woken.set
        self.versions = np.zeros(len(self.stream.acted), np.int64)
        self.numbers = np.zeros(len(self.stream.acted), np.int64)
        self.version = self.num_collected = self.num_learned = self.num_discarded = 0
        self.failures: list[BaseException] = []
        self.plays = bool(seed % 2)
        self._rng = np.random.default_rng(seed + 1000)
        self._counts = [0] * self.num_envs
        self._lengths: dict[int, int] = {}

    def begin_sampling(self) -> threading.Thread:
        """Begins the sampler's thread."""
        thread = threading.Thread(target=self.sample, daemon=True)
        thread.start()
        return thread

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

    def _start(self, envs: Indices) -> None:
        if self.plays:
            for env in envs.tolist():
                self._lengths[env] = len(self.stream.start_burst(env, self.stream.burst(env))) - 1
        else:
            self.stream.start(envs)

    def _finish(self, envs: Indices) -> None:
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
    sampler = ends.begin_sampling()
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
        sampler = ends.begin_sampling()
        ends.learn(num_batches=30, max_lag=0)
        sampler.join(LIMIT_S)
        found += ends.num_discarded
        assert ends.num_collected == ends.num_learned + ends.num_discarded + ends.stream.num_samples
    assert found > 0
