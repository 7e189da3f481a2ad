"""PPO (Schulman et al. 2017, arXiv:1707.06347): the loss of a mini-batch, and one optimiser step on it.

    batch = make_batch(runs=..., ...)                              # once per rollout
    for _ in range(settings.epochs):
        for group in split_by_env(batch.sequences, settings.num_minibatches, generator):
            stats.append(update(policy, optimizer, batch, pack(group), settings, average_gradients))
    mean_stats(stats)                                              # the one place that waits for the device

Letters: M samples of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Listed

import torch
from torch import Tensor, nn

from harness.settings import LearnSettings
from systems.learn.batch import Batch
from systems.learn.policy import Policy
from systems.learn.sequences import Packed

STATS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm")

AverageGradients = Callable[[Listed[nn.Parameter]], None]
"""Replaces each parameter's gradient by its mean over the ranks."""


def make_optimizer(policy: Policy, settings: LearnSettings) -> torch.optim.Adam:
    """Adam with the settings' step size and epsilon."""
    return torch.optim.Adam(policy.parameters(), lr=settings.learning_rate, eps=settings.adam_eps)


def ppo_loss(policy: Policy, batch: Batch, packed: Packed, settings: LearnSettings) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of one mini-batch, a mean over its samples.

    Clipped surrogate (equation 7) + `value_coef` * 0.5 * squared error of the values, without clipping
    - `entropy_coef` * entropy (equation 9).

    Returns:
        (loss, the stats of `STATS` without `grad_norm`), 0-dimensional tensors on the batch's device. `approx_kl` is
        the mean of (ratio - 1) - log(ratio), Schulman's estimator of KL(old policy, new policy).
    """
    index = packed.index
    log_probs, entropies, values = policy.evaluate(
        {key: entries[index] for key, entries in batch.obs.items()},
        batch.prev_actions[index],
        packed.batch_sizes,
        packed.states,
        batch.actions[index],
    )
    advantages = batch.advantages[index]
    if settings.normalize_advantages:
        advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-5)

    log_ratios = log_probs - batch.log_probs[index]
    ratios = log_ratios.exp()
    gains = torch.minimum(ratios * advantages, ratios.clamp(1 - settings.clip, 1 + settings.clip) * advantages)
    squared_errors = (values - batch.returns[index]).square()
    # Off-policy corrections (`settings.correct`) take their place here: weights of `gains` and `squared_errors`.
    assert settings.correct == "none", f"no such correction: {settings.correct}"

    policy_loss = -gains.mean()
    value_loss = 0.5 * squared_errors.mean()
    entropy = entropies.mean()
    loss = policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy
    with torch.no_grad():
        stats = {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": (ratios - 1 - log_ratios).mean(),
            "clip_fraction": ((ratios - 1).abs() > settings.clip).to(loss.dtype).mean(),
        }
    return loss, {name: stat.detach() for name, stat in stats.items()}


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    packed: Packed,
    settings: LearnSettings,
    average_gradients: AverageGradients | None = None,
) -> dict[str, Tensor]:
    """One optimiser step on one mini-batch.

    Args:
        policy: the policy, whose parameters the optimizer holds.
        optimizer: steps once.
        batch: the rollout.
        packed: the mini-batch, of the rollout's sequences.
        settings: the loss, and the norm to which gradients are scaled down.
        average_gradients: called between the backward pass and the scaling, so that all ranks scale alike.

    Returns:
        `STATS`, 0-dimensional tensors on the batch's device; nothing waits for that device. `grad_norm` is the norm
        after averaging and before scaling.
    """
    optimizer.zero_grad(set_to_none=True)
    loss, stats = ppo_loss(policy, batch, packed, settings)
    torch.autograd.backward(loss)
    parameters = list(policy.parameters())
    if average_gradients is not None:
        average_gradients(parameters)
    stats["grad_norm"] = nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm).detach()
    optimizer.step()
    return stats


def mean_stats(stats: Listed[dict[str, Tensor]]) -> dict[str, float]:
    """Means over updates, as floats; waits for the device once."""
    rows = torch.stack([torch.stack([update_stats[name] for name in STATS]) for update_stats in stats])
    return dict(zip(STATS, rows.mean(0).tolist(), strict=True))
