"""The experience of one rollout, ready to learn from: flat samples in any order, and the sequences that they form.

Letters: S samples, R runs (see `systems.learn.sequences`), D state size.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listed
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harness.settings import LearnSettings
from systems.learn.gae import gae_over_runs
from systems.learn.sequences import Sequence, cut_sequences


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """S samples; sample i is one env step: what was seen, done and received."""

    obs: Mapping[str, Tensor]
    """[S, ...] by key of the observation space, what the action was chosen from."""
    actions: Tensor
    """int64 [S]."""
    prev_actions: Tensor
    """int64 [S], the action before; -1 at an episode's first step."""
    log_probs: Tensor
    """float [S], of the actions, under the weights that chose them."""
    values: Tensor
    """float [S], V(obs) under those weights."""
    rewards: Tensor
    """float [S]."""
    terminated: Tensor
    """bool [S], the episode ended in a final state."""
    truncated: Tensor
    """bool [S], the episode was ended, by a time limit say."""
    bootstrap: Tensor
    """float [S], V(final observation) where truncated, V(next observation) at the end of a run; else not read."""
    advantages: Tensor
    """float [S]."""
    returns: Tensor
    """float [S], the value head's targets."""
    sequences: Listed[Sequence]
    """Each sample is in one of them."""


def make_batch(
    *,
    runs: Listed[NDArray[np.int64]],
    states: Tensor,
    obs: Mapping[str, Tensor],
    actions: Tensor,
    prev_actions: Tensor,
    log_probs: Tensor,
    values: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap: Tensor,
    settings: LearnSettings,
) -> Batch:
    """Estimates the advantages of a rollout and cuts it into sequences.

    Args:
        runs: for each environment the indices of its samples in order of time (`fixed_runs` for a rollout [T, N]).
        states: float [R, D], the recurrent state before each run's first step.
        obs: see `Batch`, and so for the tensors below.
        actions: int64 [S].
        prev_actions: int64 [S].
        log_probs: float [S].
        values: float [S].
        rewards: float [S].
        terminated: bool [S].
        truncated: bool [S].
        bootstrap: float [S].
        settings: discount and lambda.
    """
    advantages, returns = gae_over_runs(
        runs,
        rewards,
        values,
        terminated,
        truncated,
        bootstrap,
        discount=settings.discount,
        gae_lambda=settings.gae_lambda,
    )
    return Batch(
        obs=obs,
        actions=actions,
        prev_actions=prev_actions,
        log_probs=log_probs,
        values=values,
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        bootstrap=bootstrap,
        advantages=advantages,
        returns=returns,
        sequences=cut_sequences(runs, (prev_actions < 0).cpu().numpy(), states),
    )
