"""Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438).

Letters: T steps, N environments, S samples of a rollout (laid out in any order), R runs.
"""

from __future__ import annotations

from collections.abc import Sequence as Listed

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def gae(
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap: Tensor,
    *,
    discount: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """Advantages and value targets of T consecutive steps of N environments.

    Equation 16 of Schulman et al., A_t = sum over l of (discount * gae_lambda)^l * delta_(t+l), as the scan
    A_t = delta_t + discount * gae_lambda * A_(t+1), with delta_t = r_t + discount * V(s_(t+1)) - V(s_t) (equation 9).
    The sum ends with the episode. V(s_(t+1)) is 0 after a termination, V(final observation) after a truncation, and
    V(next observation) where the rollout was cut; a step that is both terminated and truncated counts as terminated.

    Args:
        rewards: float [T, N].
        values: float [T, N], V(s_t).
        terminated: bool [T, N].
        truncated: bool [T, N].
        bootstrap: float [T, N], read where truncated and in the last row only.
        discount: gamma, 0 to 1.
        gae_lambda: lambda, 0 to 1.

    Returns:
        (advantages [T, N], returns [T, N] = advantages + values).
    """
    next_values = torch.cat((values[1:], bootstrap[-1:]))  # [T, N]
    next_values = torch.where(truncated, bootstrap, next_values).masked_fill(terminated, 0.0)
    deltas = rewards + discount * next_values - values
    decays = (discount * gae_lambda) * (~(terminated | truncated)).to(values.dtype)
    advantages = torch.empty_like(values)
    following = torch.zeros_like(values[0])  # [N], A_(t+1)
    for step in range(values.shape[0] - 1, -1, -1):
        following = torch.addcmul(deltas[step], decays[step], following, out=advantages[step])
    return advantages, advantages + values


def gae_over_runs(
    runs: Listed[NDArray[np.int64]],
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap: Tensor,
    *,
    discount: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """`gae` of samples in any layout, with runs of any length.

    Args:
        runs: the indices of each run's samples in order of time; together they hold each of the S samples once. A run
            may be empty.
        rewards: float [S]; `values`, `terminated`, `truncated`, `bootstrap` likewise. `bootstrap` is read where
            truncated and at the end of each run.
        values: see rewards.
        terminated: see rewards.
        truncated: see rewards.
        bootstrap: see rewards.
        discount: gamma, 0 to 1.
        gae_lambda: lambda, 0 to 1.

    Returns:
        (advantages [S], returns [S]).
    """
    assert sum(map(len, runs)) == values.shape[0], "the runs hold each sample once"
    # Runs stand side by side with their ends aligned. The padding of shorter ones lies before their start, where the
    # backward scan no longer matters.
    num_rows = max(map(len, runs))
    grid = np.zeros((num_rows, len(runs)), np.int64)
    held = np.zeros((num_rows, len(runs)), np.bool_)
    for column, run in enumerate(runs):
        grid[num_rows - len(run) :, column] = run
        held[num_rows - len(run) :, column] = True
    at = torch.from_numpy(grid).to(values.device)  # [T, R]
    advantages_grid, _ = gae(
        rewards[at],
        values[at],
        terminated[at],
        truncated[at],
        bootstrap[at],
        discount=discount,
        gae_lambda=gae_lambda,
    )
    kept = torch.from_numpy(held).to(values.device)
    advantages = torch.empty_like(values)
    advantages[at[kept]] = advantages_grid[kept]
    return advantages, advantages + values


def next_values(
    runs: Listed[NDArray[np.int64]], values: Tensor, terminated: Tensor, truncated: Tensor, bootstrap: Tensor
) -> Tensor:
    """V(s_(t+1)) of each sample, as `gae` uses it.

    It is 0 after a termination, `bootstrap` after a truncation and at the end of a run, and else the value of the run's
    next sample.

    Args:
        runs: see `gae_over_runs`.
        values: float [S], V(s_t).
        terminated: bool [S].
        truncated: bool [S].
        bootstrap: float [S], read where truncated and at the end of each run.

    Returns:
        float [S].
    """
    following = np.zeros(len(values), np.int64)
    is_last = np.zeros(len(values), np.bool_)
    for run in runs:
        following[run[:-1]] = run[1:]
        is_last[run[-1:]] = True
    read_bootstrap = truncated | torch.from_numpy(is_last).to(values.device)
    of_next = values[torch.from_numpy(following).to(values.device)]
    return torch.where(read_bootstrap, bootstrap, of_next).masked_fill(terminated, 0.0)
