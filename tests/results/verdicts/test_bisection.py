"""The search for the commit that made a system slower."""

from __future__ import annotations

import numpy as np
import pytest

from rlbench.results.verdicts.bisection import SURE, Bisection

BLOCKS = 6


def search(first: int, num_commits: int, loss: float, noise: float, seed: int, most: int) -> tuple[Bisection, int]:
    """A search that measures blocks with some noise; with the number of its measurements."""
    generator = np.random.default_rng(seed)
    bisection, number = Bisection(num_commits=num_commits), 0
    chosen: int | None = num_commits - 1
    while chosen is not None and number < most and (number == 0 or bisection.probabilities().max() < SURE):
        factor = 1 - loss if chosen >= first else 1.0
        good = 1000 * generator.uniform(0.5, 1, BLOCKS)  # what slows both
        rates = good * factor * np.exp(noise * generator.standard_normal(BLOCKS))
        bisection.add(chosen, rates.tolist(), good.tolist())
        number += 1
        chosen = bisection.next(lambda _: 1.0)
    return bisection, number


def test_a_loss_is_found_and_its_probability_is_kept() -> None:
    """3 % among 40 commits, with a noise of 1.5 % in a block: of 200 searches hardly one names a wrong commit."""
    right, numbers = [], []
    for seed in range(200):
        first = seed % 40
        bisection, number = search(first, 40, 0.03, 0.015, seed, most=60)
        assert bisection.probabilities().max() >= SURE
        right.append(int(bisection.probabilities().argmax()) == first)
        numbers.append(number)
    assert np.mean(right) > 0.93
    assert np.median(numbers) < 15


def test_without_noise_it_is_a_binary_search() -> None:
    """A measurement halves what is left; at the end the factor is told."""
    bisection, number = search(11, 64, 0.1, 1e-6, 0, most=20)
    assert int(bisection.probabilities().argmax()) == 11
    assert number <= 8
    ratio = bisection.ratio(11)
    assert ratio == pytest.approx((0.9, 0.9, 0.9), abs=1e-4)
    assert bisection.suspects() == [11]


def test_before_anything_is_known() -> None:
    """All commits are alike, the middle one is measured, and one that was left out is not."""
    bisection = Bisection(num_commits=9)
    assert bisection.probabilities() == pytest.approx([1 / 9] * 9)
    assert bisection.ratio(8) is None
    assert bisection.next(lambda _: 1.0) in {3, 4}
    bisection.unusable |= {3, 4}
    assert bisection.next(lambda _: 1.0) in {2, 5}
    bisection.unusable |= set(range(8))
    assert bisection.next(lambda _: 1.0) is None
    assert Bisection(num_commits=1).next(lambda _: 1.0) is None


def test_what_is_cheap_is_measured_before_what_tells_a_little_more() -> None:
    """A commit that must be built first costs more than one beside the middle that is built."""
    bisection = Bisection(num_commits=16)
    assert bisection.next(lambda commit: 1.0 if commit == 5 else 2.0) == 5
    assert bisection.next(lambda commit: 1.0 if commit == 0 else 2.0) == 7
