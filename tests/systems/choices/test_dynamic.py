from __future__ import annotations

import numpy as np
import pytest

from rlbench.systems.choices.collect import Dynamic, choose_batch


@pytest.mark.parametrize(
    ("ready", "num_in_flight", "least", "most", "turn", "expected"),
    [
        ([], 4, 1, 0, 0, []),
        ([2], 3, 1, 0, 0, [2]),
        ([0, 2, 3], 1, 1, 0, 3, [0, 2, 3]),
        ([0, 2], 2, 3, 0, 0, []),  # waits for a third
        ([0, 2], 0, 3, 0, 0, [0, 2]),  # for whom nobody is left
        ([0, 1, 2], 1, 3, 0, 0, [0, 1, 2]),
        ([0, 1, 2, 3], 0, 1, 4, 2, [0, 1, 2, 3]),
        ([0, 1, 2, 3], 0, 1, 2, 0, [0, 1]),
        ([0, 1, 2, 3], 0, 1, 2, 2, [2, 3]),
        ([0, 1, 2, 3], 0, 1, 2, 3, [3, 0]),
        ([0, 1, 4, 5], 2, 1, 3, 2, [4, 5, 0]),
        ([0, 1, 4, 5], 2, 1, 3, 6, [0, 1, 4]),
    ],
)
def test_by_hand(ready: list[int], num_in_flight: int, least: int, most: int, turn: int, expected: list[int]) -> None:
    """All that wait, between a minimum and a maximum (VER section 2.1), in the order of their turns."""
    assert choose_batch(np.array(ready, np.int64), num_in_flight, least, most, turn).tolist() == expected


@pytest.mark.parametrize("seed", range(300))
def test_bounds_are_kept(seed: int) -> None:
    """Never more than the maximum; never fewer than the minimum while others will come; else somebody, if one waits."""
    rng = np.random.default_rng(seed)
    num_envs = int(rng.integers(1, 20))
    ready = np.flatnonzero(rng.random(num_envs) < rng.random())
    num_in_flight = int(rng.integers(num_envs - len(ready) + 1))
    least = int(rng.integers(1, num_envs + 1))
    most = 0 if rng.random() < 0.3 else int(rng.integers(least, num_envs + 1))
    chosen = choose_batch(ready, num_in_flight, least, most, int(rng.integers(num_envs + 1))).tolist()
    assert set(chosen) <= set(ready.tolist())
    assert len(set(chosen)) == len(chosen)
    assert len(chosen) <= (most or num_envs)
    if len(ready) < least and num_in_flight:
        assert chosen == []
    else:
        assert len(chosen) == min(len(ready), most or len(ready))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("replies", ["at-once", "at-random"])
def test_nobody_starves_under_a_maximum(seed: int, replies: str) -> None:
    """Who waits gets an action within N / maximum inferences, rounded up, however fast the others are."""
    rng = np.random.default_rng(seed)
    num_envs = int(rng.integers(2, 12))
    most = int(rng.integers(1, num_envs))
    in_flight = np.zeros(num_envs, np.bool_)
    waited, turn = np.zeros(num_envs, np.int64), 0
    for _ in range(400):
        ready = np.flatnonzero(~in_flight)
        chosen = choose_batch(ready, int(in_flight.sum()), 1, most, turn)
        if len(chosen):
            turn = int(chosen[-1]) + 1
            waited[ready] += 1
            waited[chosen] = 0
            in_flight[chosen] = True
        assert waited.max() < -(-num_envs // most)
        in_flight &= (rng.random(num_envs) < 0.5) & (replies == "at-random")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_batch": 0}, "collect.min_batch=0: must be at least 1"),
        ({"min_batch": 4, "max_batch": 3}, r"collect.max_batch=3: must be at least min_batch=4.*nearest: max_batch=4"),
        ({"max_batch": -1}, "collect.max_batch=-1: must be at least min_batch=1, or 0 for all"),
    ],
)
def test_bounds_that_are_none(settings: dict[str, int], message: str) -> None:
    """A minimum below one, and a maximum below the minimum, are refused with the rule."""
    with pytest.raises(ValueError, match=message):
        Dynamic(**settings)


def test_a_minimum_above_the_number_of_environments() -> None:
    """It could never be reached; the nearest that can is named."""
    assert Dynamic(min_batch=4).check(4) is None
    assert Dynamic(min_batch=5).check(4) == ("collect.min_batch=5: must be at most num_envs=4; nearest: min_batch=4")
