"""The experience of one rollout, ready to learn from: flat samples in any order, and the sequences they form.

Letters: S samples, K numbers of an action, R runs (see `systems.learn.sequences`), D state size.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listed
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.gae import gae_over_runs, next_values
from rlbench.systems.learn.sequences import Sequence, cut_sequences


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """S samples; sample i is one env step: its observation, action and reward, and what follows from them."""

    obs: Mapping[str, Tensor]
    """[S, ...] by key of the observation space; the action was chosen from it."""
    actions: Tensor
    """[S, K], as rows of `systems.spaces.actions`."""
    prev_actions: Tensor
    """[S, K], the action before; not read at an episode's first step."""
    starts: Tensor
    """bool [S], whether it is an episode's first step."""
    log_probs: Tensor
    """float [S], of the actions, under the weights that chose them."""
    values: Tensor
    """float [S], V(obs) under those weights."""
    rewards: Tensor
    """float [S]."""
    terminated: Tensor
    """bool [S], the episode ended in a final state."""
    truncated: Tensor
    """bool [S], the episode was cut off, for example by a time limit."""
    bootstrap: Tensor
    """float [S], V(final observation) where truncated, V(next observation) at the end of a run; else not read."""
    states: Tensor
    """float [S, D], the recurrent state before each sample; at an episode's first step zero is used instead."""
    next_values: Tensor
    """float [S], V(s_(t+1)) under the acting weights, as `systems.learn.gae.next_values` says."""
    advantages: Tensor
    """float [S]."""
    returns: Tensor
    """float [S], the value head's targets."""
    sampling_weights: Tensor
    """float [S], the importance weight of the sample's environment, not truncated; see `sampling_weights`."""
    sequences: Listed[Sequence]
    """Each sample is in exactly one of them; none if nobody asks for them."""


def make_batch(
    *,
    runs: Listed[NDArray[np.int64]],
    envs: Listed[int],
    states: Tensor,
    obs: Mapping[str, Tensor],
    actions: Tensor,
    prev_actions: Tensor,
    starts: Tensor,
    log_probs: Tensor,
    values: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap: Tensor,
    steps_per_env: float,
    settings: LearnSettings,
    agents: int = 1,
    has_sequences: bool = True,
) -> Batch:
    """Estimates the advantages of a rollout and cuts it into sequences.

    Args:
        runs: the indices of each run's samples in order of time (`fixed_runs` for a rollout [T, N]); together they hold
            each of the S samples once.
        envs: the environment of each run; one environment may have several runs, such as a stale and a fresh one.
        states: float [S, D], the recurrent state before each sample.
        obs: see `Batch`, also for the tensors below.
        actions: [S, K].
        prev_actions: [S, K].
        starts: bool [S].
        log_probs: float [S].
        values: float [S].
        rewards: float [S].
        terminated: bool [S].
        truncated: bool [S].
        bootstrap: float [S].
        steps_per_env: see `sampling_weights`.
        settings: discount and lambda.
        agents: A; environment e has the rows e * A to e * A + A - 1, which `envs` names. Environments count alike,
            whichever of their agents were there.
        has_sequences: False if nobody asks for them; cutting them takes a while where there are many.
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
        starts=starts,
        log_probs=log_probs,
        values=values,
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        bootstrap=bootstrap,
        states=states,
        next_values=next_values(runs, values, terminated, truncated, bootstrap),
        advantages=advantages,
        returns=returns,
        sampling_weights=sampling_weights(runs, [env // agents for env in envs], steps_per_env).to(values),
        sequences=cut_sequences(runs, envs, starts.cpu().numpy(), states) if has_sequences else [],
    )


def sampling_weights(runs: Listed[NDArray[np.int64]], envs: Listed[int], steps_per_env: float) -> Tensor:
    """Importance weights that make environments count alike, however many samples each has: float64 [S].

    A variable rollout holds more samples of fast environments: VER corrects this biased sampling 'with truncated
    importance sampling weighting' (section 4, 'Training'). The wanted distribution is uniform, T samples of each
    environment, so a sample of an environment that has S_e gets T / S_e, not truncated yet. How many samples the other
    environments have, if any, changes nothing.

    Args:
        runs: the indices of each run's samples.
        envs: the environment of each run.
        steps_per_env: T, the samples of a whole rollout over the environments that there are.
    """
    counts: dict[int, int] = {}
    for env, run in zip(envs, runs, strict=True):
        counts[env] = counts.get(env, 0) + len(run)
    weights = np.empty(sum(counts.values()))
    for env, run in zip(envs, runs, strict=True):
        if len(run):
            weights[run] = steps_per_env / counts[env]
    return torch.from_numpy(weights)
