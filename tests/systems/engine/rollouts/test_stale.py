from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from rlbench.systems.engine.rollouts.stale import StaleFill
from tests.systems.engine.rollouts.driving import Step


class Ring:
    """A literal ring buffer: `capacity` places, and a pointer to the place that is written next."""

    def __init__(self, capacity: int) -> None:
        self.places: list[Step | None] = [None] * capacity
        self.pointer = 0

    def write(self, steps: Iterable[Step]) -> list[Step]:
        """Writes steps one after the other; returns what was there."""
        overwritten = []
        for step in steps:
            old = self.places[self.pointer]
            if old is not None:
                overwritten.append(old)
            self.places[self.pointer] = step
            self.pointer = (self.pointer + 1) % len(self.places)
        return overwritten

    def by_age(self) -> list[Step]:
        """What is in it, the oldest first."""
        turned = self.places[self.pointer :] + self.places[: self.pointer]
        return [step for step in turned if step is not None]


@pytest.mark.parametrize("seed", range(20))
def test_fills_as_a_ring_buffer_does(seed: int) -> None:
    """Over many rollouts, full and cut: experience and freed slots are those of a ring buffer of T x N places."""
    rng = np.random.default_rng(seed)
    capacity, num_envs = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    stale, ring, next_slot = StaleFill(capacity), Ring(capacity), 0
    for _ in range(50):
        num_fresh = capacity if rng.random() < 0.3 else int(rng.integers(1, capacity + 1))
        fresh = [(int(rng.integers(num_envs)), next_slot + number) for number in range(num_fresh)]
        next_slot += num_fresh
        overwritten = ring.write(fresh)
        experience, freed = stale.fill(np.array(fresh))
        left = ring.by_age()[: -len(fresh)]
        assert freed == [slot for _, slot in overwritten]
        assert experience.num_samples == len(ring.by_age())
        assert experience.num_stale == len(left)
        assert sorted(np.concatenate(experience.fresh_runs).tolist()) == [slot for _, slot in fresh]
        for env, run in zip(experience.envs, experience.runs, strict=True):
            of_env = {slot for number, slot in ring.by_age() if number == env}
            assert set(run.tolist()) <= of_env
            assert (np.diff(run) > 0).all(), "in order of time"
        stale_slots = [slot for run in experience.runs[: experience.num_stale_runs] for slot in run.tolist()]
        assert sorted(stale_slots) == [slot for _, slot in left]


def test_the_oldest_go_first() -> None:
    """A preempted rank fills up to T x N with the newest steps of the rollout before (VER section 2.3)."""
    stale = StaleFill(4)
    first, freed = stale.fill(np.array([(0, 10), (1, 11), (0, 12), (1, 13)]))
    assert freed == []
    assert first.num_stale == 0
    second, freed = stale.fill(np.array([(1, 14)]))
    assert freed == [10]
    assert [run.tolist() for run in second.runs] == [[12], [11, 13], [14]]
    assert list(second.envs) == [0, 1, 1]
    assert (second.num_samples, second.num_stale) == (4, 3)
    third, freed = stale.fill(np.array([(0, 15), (0, 16)]))
    assert freed == [11, 12]
    assert [run.tolist() for run in third.runs] == [[13, 14], [15, 16]]


def test_what_nobody_cut_is_not_filled() -> None:
    """A rollout that is whole, but shorter since resets took places in it, replaces all that was kept."""
    stale = StaleFill(4)
    stale.fill(np.array([(0, 10), (1, 11), (0, 12), (1, 13)]), is_whole=True)
    second, freed = stale.fill(np.array([(0, 14), (1, 15)]), is_whole=True)
    assert (second.num_samples, second.num_stale, freed) == (2, 0, [10, 11, 12, 13])
    third, freed = stale.fill(np.array([(1, 16)]))
    assert (third.num_samples, third.num_stale, freed) == (3, 2, []), "the next one is cut"
