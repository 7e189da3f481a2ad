"""PPO (Schulman et al. 2017, arXiv:1707.06347): the loss of a mini-batch, and one optimiser step on it.

    batch = make_batch(runs=..., ...)                              # once per rollout
    for _ in range(settings.epochs):
        for group in split_by_env(batch.sequences, settings.num_minibatches, generator):
            stats.append(update(policy, optimizer, batch, pack(group), settings, average_gradients))
    means, broken = gather(stats, policy.parameters())             # of `finite.py`, which alone waits for the device

Letters: M samples of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Listed

import torch
from torch import Tensor, nn

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.batch import Batch
from rlbench.systems.learn.optimizers import Optimizer
from rlbench.systems.learn.schedules import EntropyCoefficient
from rlbench.systems.learn.sequences import Packed
from rlbench.systems.learn.vtrace import vtrace
from rlbench.systems.policies.policy import Policy

STATS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "mean_weight", "grad_norm")

AverageGradients = Callable[[Listed[nn.Parameter]], None]
"""Replaces each parameter's gradient by its mean over the ranks."""


SumMoments = Callable[[Tensor], Tensor]
"""The sum over the ranks of a float64 tensor [3]: how many advantages, their sum, the sum of their squares."""


def ppo_loss(
    policy: Policy,
    batch: Batch,
    packed: Packed,
    settings: LearnSettings,
    sum_moments: SumMoments | None = None,
    entropy_coef: Tensor | float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of one mini-batch, a mean over its samples.

    Clipped surrogate (equation 7) + `value_coef` * 0.5 * squared error of the values, without clipping
    - `entropy_coef` * entropy (equation 9). What `settings.correct` changes:

    - `vtrace`: targets and advantages are V-trace's, from the current policy and the mini-batch's own sequences.
    - `truncated_is`: each sample's part of all three terms is weighted with its sampling weight, at most `rho` (VER
      section 4, 'Training'). PPO's ratio stays: it corrects which actions were taken, and the weights which
      environments were sampled. The weights are fixed for the rollout, so no gradient flows through them. VER does not
      correct stale experience otherwise (section 2.3).

    Returns:
        (loss, the stats of `STATS` without `grad_norm`), 0-dimensional tensors on the batch's device. `approx_kl` is
        the mean of (ratio - 1) - log(ratio), Schulman's estimator of KL(old policy, new policy). `mean_weight` is the
        mean of the correction's truncated weights, 1 without a correction. `entropy` is not weighted.
    """
    index = packed.index
    log_probs, entropies, values = policy.evaluate(
        {key: entries.index_select(0, index) for key, entries in batch.obs.items()},
        batch.prev_actions[index],
        batch.starts[index],
        packed.batch_sizes,
        packed.states,
        batch.actions[index],
    )
    log_ratios = log_probs - batch.log_probs[index]
    ratios = log_ratios.exp()
    targets, advantages = _targets(batch, packed, log_ratios.detach(), values.detach(), settings)
    if settings.normalize_advantages == "all" and sum_moments is not None:
        advantages = _normalized_over_ranks(advantages, sum_moments)
    elif settings.normalize_advantages != "none":
        advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-5)

    clipped = ratios.clamp(*settings.clip_range)
    gains = torch.minimum(ratios * advantages, clipped * advantages)
    squared_errors = (values - targets).square()
    bonuses = entropies
    if settings.correct == "truncated_is":
        weights = batch.sampling_weights[index].clamp(max=settings.rho)
        gains, squared_errors, bonuses = weights * gains, weights * squared_errors, weights * entropies
    elif settings.correct == "vtrace":
        weights = ratios.clamp(max=settings.rho)
    else:
        weights = torch.ones_like(values)

    coefficient = settings.entropy_coef if entropy_coef is None else entropy_coef
    policy_loss = -gains.mean()
    value_loss = 0.5 * squared_errors.mean()
    loss = policy_loss + settings.value_coef * value_loss - coefficient * bonuses.mean()
    with torch.no_grad():
        stats = {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropies.mean(),
            "approx_kl": (ratios - 1 - log_ratios).mean(),
            "clip_fraction": (ratios != clipped).to(loss.dtype).mean(),
            "mean_weight": weights.mean(),
        }
    return loss, {name: stat.detach() for name, stat in stats.items()}


def _normalized_over_ranks(advantages: Tensor, sum_moments: SumMoments) -> Tensor:
    """With mean 0 and deviation 1 over the mini-batches of all ranks: one message (DD-PPO appendix E has the like)."""
    exact = advantages.double()
    moments = torch.stack([torch.full_like(exact[0], len(exact)), exact.sum(), exact.square().sum()])
    count, total, squares = sum_moments(moments).unbind()
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
    return ((exact - mean) / (deviation + 1e-5)).to(advantages)


def _targets(
    batch: Batch, packed: Packed, log_ratios: Tensor, values: Tensor, settings: LearnSettings
) -> tuple[Tensor, Tensor]:
    """(value targets [M], advantages [M]) of a mini-batch; `log_ratios` and `values` are the current policy's."""
    index = packed.index
    if settings.correct != "vtrace":
        return batch.returns[index], batch.advantages[index]
    return vtrace(
        log_ratios,
        batch.rewards[index],
        values,
        batch.next_values[index],
        packed.batch_sizes,
        discount=settings.discount,
        rho=settings.rho,
        c=settings.c,
    )


def update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    packed: Packed,
    settings: LearnSettings,
    average_gradients: AverageGradients | None = None,
    sum_moments: SumMoments | None = None,
    entropy: EntropyCoefficient | None = None,
) -> dict[str, Tensor]:
    """One optimiser step on one mini-batch.

    Args:
        policy: the policy, whose parameters the optimizer holds.
        optimizer: steps once.
        batch: the rollout.
        packed: the mini-batch, of the rollout's sequences.
        settings: the loss, and the norm to which gradients are scaled down.
        average_gradients: called between the backward pass and the scaling, so that all ranks scale equally.
        sum_moments: called within the forward pass if advantages are normalised over `all` ranks; None for one rank.
        entropy: the weight of the entropy bonus, which may learn; None: that of `settings`.

    Returns:
        `STATS`, 0-dimensional tensors on the batch's device; nothing waits for that device. `grad_norm` is the norm
        after averaging and before scaling.
    """
    optimizer.zero_grad()
    loss, stats = ppo_loss(policy, batch, packed, settings, sum_moments, entropy.value if entropy else None)
    torch.autograd.backward(loss)
    parameters = list(policy.parameters())
    beside = entropy.note(stats["entropy"]) if entropy else []
    if average_gradients is not None:
        average_gradients([*parameters, *beside])
    stats["grad_norm"] = nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm).detach()
    optimizer.step()
    if entropy:
        entropy.step()
    return stats


def mean_rows(stats: Listed[dict[str, Tensor]]) -> tuple[Tensor, Tensor]:
    """(`STATS` of each of U updates [U, K], their means over the updates [K]), on the device."""
    rows = torch.stack([torch.stack([update_stats[name] for name in STATS]) for update_stats in stats])
    return rows, rows.mean(0)
