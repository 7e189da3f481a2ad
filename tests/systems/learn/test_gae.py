from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench.systems.learn.gae import gae, gae_over_runs

DISCOUNT = 0.97
LAMBDA = 0.9


def literal_gae(rewards: Tensor, values: Tensor, terminated: Tensor, truncated: Tensor, bootstrap: Tensor) -> Tensor:
    """Equations 9 and 16 of Schulman et al. 2016 for one environment, term by term; all arguments [T]."""
    num_steps = len(rewards)
    deltas = []
    for t in range(num_steps):
        if terminated[t]:
            next_value = 0.0
        elif truncated[t] or t == num_steps - 1:
            next_value = float(bootstrap[t])
        else:
            next_value = float(values[t + 1])
        deltas.append(float(rewards[t]) + DISCOUNT * next_value - float(values[t]))
    advantages = []
    for t in range(num_steps):
        total = 0.0
        for later in range(t, num_steps):
            total += (DISCOUNT * LAMBDA) ** (later - t) * deltas[later]
            if terminated[later] or truncated[later]:
                break
        advantages.append(total)
    return torch.tensor(advantages, dtype=torch.float64)


def random_case(seed: int, num_samples: int, end_probability: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(rewards, values, terminated, truncated, bootstrap), each [S]; some steps are both terminated and truncated."""
    generator = torch.Generator().manual_seed(seed)
    rewards, values, bootstrap = torch.randn(3, num_samples, dtype=torch.float64, generator=generator)
    terminated, truncated = torch.rand(2, num_samples, generator=generator) < end_probability
    return rewards, values, terminated, truncated, bootstrap


@pytest.mark.parametrize("seed", range(20))
def test_literal(seed: int) -> None:
    """GAE equals the double sum of its equation, however episodes end, and reads `bootstrap` only where it must."""
    numbers = np.random.default_rng(seed)
    num_steps, num_envs = int(numbers.integers(1, 25)), int(numbers.integers(1, 6))
    columns = random_case(seed, num_steps * num_envs, float(numbers.uniform(0, 0.5)))
    rewards, values, terminated, truncated, bootstrap = (column.view(num_steps, num_envs) for column in columns)
    is_read = truncated.clone()
    is_read[-1] = True
    is_read &= ~terminated
    bootstrap[~is_read] = torch.nan
    advantages, returns = gae(rewards, values, terminated, truncated, bootstrap, discount=DISCOUNT, gae_lambda=LAMBDA)
    for env in range(num_envs):
        expected = literal_gae(*(x[:, env] for x in (rewards, values, terminated, truncated, bootstrap)))
        torch.testing.assert_close(advantages[:, env], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(returns, advantages + values)


@pytest.mark.parametrize("seed", range(10))
def test_runs_of_any_length(seed: int) -> None:
    """Runs of different lengths, empty ones too, in any sample order, each get the advantages of their own steps."""
    numbers = np.random.default_rng(seed)
    lengths = [int(length) for length in numbers.integers(0, 20, size=5)]
    order = numbers.permutation(sum(lengths)).astype(np.int64)
    runs = np.split(order, np.cumsum(lengths)[:-1])
    columns = random_case(seed, sum(lengths), 0.2)
    advantages, returns = gae_over_runs(runs, *columns, discount=DISCOUNT, gae_lambda=LAMBDA)
    for run in runs:
        expected = literal_gae(*(column[torch.from_numpy(run)] for column in columns))
        torch.testing.assert_close(advantages[torch.from_numpy(run)], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(returns, advantages + columns[1])


def test_ends() -> None:
    """With lambda 1 the target is the discounted return; after a truncation the final observation's value counts."""
    one = torch.ones(3, 2)
    terminated = torch.tensor([[False, False], [False, False], [True, False]])
    truncated = torch.tensor([[False, False], [False, False], [False, True]])
    _, returns = gae(one, 7 * one, terminated, truncated, 8 * one, discount=0.5, gae_lambda=1.0)
    torch.testing.assert_close(returns[:, 0], torch.tensor([1.75, 1.5, 1.0]))
    torch.testing.assert_close(returns[:, 1], torch.tensor([2.75, 3.5, 5.0]))
