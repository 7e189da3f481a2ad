from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rlbench.systems.choices.collect import DoubleBuffered, fewest_per_worker, group_of, whole_groups

SHAPES = [(num_envs, k) for num_envs in range(2, 26, 2) for k in range(2, num_envs + 1, 2) if num_envs % k == 0]


@pytest.mark.parametrize(
    ("num_envs", "envs_per_worker", "expected"),
    [(4, 2, [0, 1, 2, 3]), (4, 4, [0, 0, 1, 1]), (8, 4, [0, 0, 1, 1, 2, 2, 3, 3]), (6, 6, [0, 0, 0, 1, 1, 1])],
)
def test_groups_by_hand(num_envs: int, envs_per_worker: int, expected: list[int]) -> None:
    """A worker's environments form two groups, its first half and its second (Sample Factory section 3.2)."""
    assert group_of(num_envs, envs_per_worker).tolist() == expected


@pytest.mark.parametrize(("num_envs", "envs_per_worker"), SHAPES)
def test_every_environment_is_in_exactly_one_group(num_envs: int, envs_per_worker: int) -> None:
    """Each worker has two groups, of half its environments each, and shares none with another worker."""
    groups = group_of(num_envs, envs_per_worker)
    workers = np.arange(num_envs) // envs_per_worker
    assert len(groups) == num_envs
    assert np.bincount(groups).tolist() == [envs_per_worker // 2] * (2 * num_envs // envs_per_worker)
    for worker in range(num_envs // envs_per_worker):
        assert sorted(set(groups[workers == worker].tolist())) == [2 * worker, 2 * worker + 1]


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=4)))
def test_a_group_is_acted_for_when_all_of_it_waits(flags: tuple[bool, ...]) -> None:
    """Of those that wait, exactly those of whose group nobody is in flight."""
    groups = np.array([0, 0, 1, 1])
    in_flight = np.array(flags)
    ready = np.flatnonzero(~in_flight)
    expected = [env for env in ready.tolist() if not in_flight[groups == groups[env]].any()]
    assert whole_groups(ready, in_flight, groups).tolist() == expected


def test_who_may_not_act_does_not_hold_up_its_group() -> None:
    """An environment that has all its steps is not ready, and not waited for."""
    groups, in_flight = np.array([0, 0, 1, 1]), np.array([False, False, True, False])
    assert whole_groups(np.array([1, 3]), in_flight, groups).tolist() == [1]


@pytest.mark.parametrize("seed", range(20))
def test_somebody_is_always_acted_for_or_in_flight(seed: int) -> None:
    """Whatever order workers answer in, a worker's groups take turns, and no environment starves."""
    rng = np.random.default_rng(seed)
    num_envs, k = SHAPES[int(rng.integers(len(SHAPES)))]
    groups = group_of(num_envs, k)
    in_flight, steps = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.int64)
    for _ in range(200):
        whole = whole_groups(np.flatnonzero(~in_flight), in_flight, groups)
        assert len(whole) or in_flight.any()
        in_flight[whole] = True
        # A worker steps one environment after the other: of each, the one that has waited longest answers.
        for worker in rng.permutation(num_envs // k)[: rng.integers(1, num_envs // k + 1)]:
            flying = [env for env in range(worker * k, (worker + 1) * k) if in_flight[env]]
            env = min(flying, key=lambda env: (steps[env], env))
            in_flight[env] = False
            steps[env] += 1
        of_worker = steps.reshape(-1, k)
        assert (of_worker.max(1) - of_worker.min(1) <= 2).all()


def slow_fewest(num_envs: int, num_cores: int) -> int:
    """The rule, literally."""
    for k in range(1, num_envs + 1):
        if k % 2 == 0 and num_envs % k == 0 and num_envs / k <= num_cores:
            return k
    raise AssertionError("one worker for all is always few enough")


@pytest.mark.parametrize("num_cores", [1, 2, 3, 4, 10, 36, 1000])
def test_as_many_workers_as_cores(num_cores: int) -> None:
    """The fewest environments a worker, an even number, such that workers do not outnumber cores (appendix A.3)."""
    for num_envs in range(2, 130, 2):
        found = fewest_per_worker(num_envs, num_cores)
        assert found == slow_fewest(num_envs, num_cores)
        assert DoubleBuffered().envs_per_worker(num_envs, num_cores) == found


@pytest.mark.parametrize(
    ("settings", "num_envs", "parts"),
    [
        ({}, 7, ("num_envs=7", "even", "nearest: num_envs=8", "collect=dynamic")),
        (
            {"num_envs_per_worker": 4},
            6,
            ("num_envs_per_worker=4", "divide num_envs=6", "nearest: num_envs_per_worker=6"),
        ),
        (
            {"num_envs_per_worker": 8},
            4,
            ("num_envs_per_worker=8", "divide num_envs=4", "nearest: num_envs_per_worker=4"),
        ),
        ({"min_batch": 3}, 4, ("min_batch=3", "half of num_envs=4", "nearest: min_batch=2")),
    ],
)
def test_what_cannot_be_split_in_two(settings: dict[str, Any], num_envs: int, parts: tuple[str, ...]) -> None:
    """Odd numbers of environments, unequal workers and a batch that half cannot fill are refused with the nearest."""
    reason = DoubleBuffered(**settings).check(num_envs)
    assert reason is not None
    assert all(part in reason for part in parts), reason


def test_the_nearest_number_a_worker_is_accepted() -> None:
    """Whatever is refused, the number of environments a worker that the refusal names will do."""
    refused = 0
    for num_envs in range(2, 40, 2):
        for k in range(2, 50, 2):
            reason = DoubleBuffered(num_envs_per_worker=k).check(num_envs)
            if reason is not None:
                refused += 1
                nearest = int(reason.rpartition("=")[2])
                assert DoubleBuffered(num_envs_per_worker=nearest).check(num_envs) is None, reason
    assert refused > 100


@pytest.mark.parametrize("num_envs", [2, 8])
def test_what_can_be_split_in_two(num_envs: int) -> None:
    """An even number of environments will do, with half of them as the smallest batch."""
    assert DoubleBuffered(num_envs_per_worker=2, min_batch=num_envs // 2).check(num_envs) is None
    assert DoubleBuffered(num_envs_per_worker=2).envs_per_worker(num_envs, num_cores=1) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs_per_worker": 3}, "collect.num_envs_per_worker=3: must be even, for two groups, or 0; nearest: 4"),
        ({"num_envs_per_worker": -2}, "collect.num_envs_per_worker=-2: must be even"),
        ({"niceness": 20}, "collect.niceness=20: must be from 0 to 19"),
        ({"min_batch": 0}, "collect.min_batch=0: must be at least 1"),
        ({"max_batch": 1, "min_batch": 2}, "collect.max_batch=1: must be at least min_batch=2"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    """A setting that is none is refused with its rule."""
    with pytest.raises(ValueError, match=message):
        DoubleBuffered(**settings)
