from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench.systems.learn.sequences import Sequence, pack
from rlbench.systems.learn.vtrace import vtrace

DISCOUNT = 0.97


def literal_targets(
    ratios: list[float], rewards: list[float], values: list[float], rho: float, c: float
) -> list[float]:
    """Equation 1 of Espeholt et al. 2018 for one sequence of n steps, term by term; `values` has n + 1 entries."""
    num_steps = len(rewards)
    targets = []
    for s in range(num_steps):
        total = values[s]
        for t in range(s, num_steps):
            delta = min(rho, ratios[t]) * (rewards[t] + DISCOUNT * values[t + 1] - values[t])
            product = 1.0
            for i in range(s, t):
                product *= min(c, ratios[i])
            total += DISCOUNT ** (t - s) * product * delta
        targets.append(total)
    return targets


class Case:
    """Random sequences of several lengths, packed; samples in packed order, and `ends` in the sequences' order."""

    def __init__(self, seed: int) -> None:
        numbers = np.random.default_rng(seed)
        lengths = numbers.integers(1, 25, size=int(numbers.integers(1, 8))).tolist()
        pieces = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
        self.packed = pack([Sequence(env=0, index=piece, state=torch.zeros(1)) for piece in pieces])
        self.pieces = pieces
        size = sum(lengths)
        self.log_ratios, self.rewards, self.values = numbers.normal(size=(3, size))
        # What follows a sequence: nothing (termination), or some value (truncation, or a rollout that was cut).
        self.next_values = np.full(size, np.nan)
        for piece in pieces:
            self.next_values[piece[-1]] = numbers.choice([0.0, numbers.normal()])

    def packed_vtrace(self, rho: float, c: float) -> tuple[Tensor, Tensor]:
        """The function under test; results in the samples' own order."""
        index = self.packed.index
        columns = (self.log_ratios, self.rewards, self.values, self.next_values)
        log_ratios, rewards, values, next_values = (torch.from_numpy(column)[index] for column in columns)
        results = vtrace(
            log_ratios, rewards, values, next_values, self.packed.batch_sizes, discount=DISCOUNT, rho=rho, c=c
        )
        targets, advantages = (torch.empty_like(result).index_copy(0, index, result) for result in results)
        return targets, advantages

    def values_of(self, piece: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[float]:
        """V at each step of a sequence, and after it."""
        return [*self.values[piece].tolist(), float(self.next_values[piece[-1]])]


@pytest.mark.parametrize(("rho", "c"), [(1.0, 1.0), (1.5, 0.7), (0.4, 0.4), (math.inf, math.inf)])
@pytest.mark.parametrize("seed", range(8))
def test_literal(seed: int, rho: float, c: float) -> None:
    """Targets equal the sum of products of equation 1, advantages r_s + discount * v_(s+1) - V(x_s), for all lengths.

    What follows a sequence is read at its last step only.
    """
    case = Case(seed)
    targets, advantages = case.packed_vtrace(rho, c)
    for piece in case.pieces:
        values, rewards = case.values_of(piece), case.rewards[piece].tolist()
        expected = literal_targets(np.exp(case.log_ratios[piece]).tolist(), rewards, values, rho, c)
        assert targets[piece].tolist() == pytest.approx(expected, rel=1e-10, abs=1e-10)
        following = [*expected[1:], values[-1]]
        gains = [r + DISCOUNT * v - now for r, v, now in zip(rewards, following, values[:-1], strict=True)]
        assert advantages[piece].tolist() == pytest.approx(gains, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_on_policy_is_n_step_return(seed: int) -> None:
    """Without lag and with rho = c = 1 the target is the discounted return to the sequence's end, plus what follows."""
    case = Case(seed)
    case.log_ratios[:] = 0
    targets, advantages = case.packed_vtrace(1.0, 1.0)
    for piece in case.pieces:
        expected, total = [], float(case.next_values[piece[-1]])
        for reward in reversed(case.rewards[piece].tolist()):
            total = reward + DISCOUNT * total
            expected.append(total)
        assert targets[piece].tolist() == pytest.approx(expected[::-1], rel=1e-10, abs=1e-10)
        torch.testing.assert_close(advantages[piece], targets[piece] - torch.from_numpy(case.values[piece]))


def test_keeps_its_arguments_and_no_gradient() -> None:
    """The arguments stay as they were, and no gradient flows through targets and advantages."""
    arguments = [torch.rand(6, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    before = [argument.detach().clone() for argument in arguments]
    one, two, three, four = arguments
    results = vtrace(one, two, three, four, torch.tensor([3, 2, 1]), discount=DISCOUNT, rho=1.0, c=1.0)
    assert not any(result.requires_grad for result in results)
    assert all(torch.equal(argument, old) for argument, old in zip(arguments, before, strict=True))
