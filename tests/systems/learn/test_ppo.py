from __future__ import annotations

import math
from collections.abc import Sequence as Listed
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from harness.settings import LearnSettings
from systems.learn.batch import Batch
from systems.learn.policy import Policy, build_policy
from systems.learn.ppo import STATS, make_optimizer, mean_stats, ppo_loss, update
from systems.learn.sequences import Packed, Sequence, pack

from .rollouts import play, sharpen, space

SETTINGS = LearnSettings(entropy_coef=0.02, max_grad_norm=0.1)
SPACE = space()


def policy_and_batch(kind: str = "small", of: gymnasium.spaces.Dict = SPACE, num_envs: int = 8) -> tuple[Policy, Batch]:
    """A float64 policy and what it collected, with log-probabilities so far off that many ratios are clipped."""
    policy = sharpen(build_policy(kind, of, 4, seed=2).double())
    batch = play(policy, of, num_steps=12, num_envs=num_envs, settings=SETTINGS)
    noise = 0.3 * torch.randn(batch.log_probs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return policy, replace(batch, log_probs=batch.log_probs + noise)


def gradient(loss: Tensor, policy: Policy) -> Tensor:
    """The gradient of all parameters as one vector."""
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(policy.parameters()))])


def test_loss_is_literal() -> None:
    """The loss and its stats equal PPO's equations 7 and 9, written out sample by sample."""
    policy, batch = policy_and_batch(num_envs=3)
    packed = pack(batch.sequences)
    loss, stats = ppo_loss(policy, batch, packed, SETTINGS)
    with torch.no_grad():
        obs = {key: entries[packed.index] for key, entries in batch.obs.items()}
        log_probs, entropies, values = policy.evaluate(
            obs, batch.prev_actions[packed.index], packed.batch_sizes, packed.states, batch.actions[packed.index]
        )
    surrogates, errors, kls, clipped = [], [], [], []
    for place, sample in enumerate(packed.index.tolist()):
        ratio = math.exp(float(log_probs[place]) - float(batch.log_probs[sample]))
        advantage = float(batch.advantages[sample])
        surrogates.append(min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage))
        errors.append((float(values[place]) - float(batch.returns[sample])) ** 2)
        kls.append(ratio - 1 - math.log(ratio))
        clipped.append(float(not 0.8 <= ratio <= 1.2))
    assert 0.2 < np.mean(clipped) < 0.9
    expected = {
        "loss": -np.mean(surrogates) + 0.5 * 0.5 * np.mean(errors) - 0.02 * float(entropies.mean()),
        "policy_loss": -np.mean(surrogates),
        "value_loss": 0.5 * np.mean(errors),
        "entropy": float(entropies.mean()),
        "approx_kl": np.mean(kls),
        "clip_fraction": np.mean(clipped),
    }
    assert {name: float(stat) for name, stat in stats.items()} == pytest.approx(expected, rel=1e-10)
    assert float(loss.detach()) == float(stats["loss"])


@pytest.mark.parametrize(("kind", "of"), [("small", SPACE), ("conv", space(pixels=(1, 36, 36)))])
def test_packing_changes_nothing(kind: str, of: gymnasium.spaces.Dict) -> None:
    """A packed mini-batch has the loss and the gradient of its sequences run one by one, weighted by their lengths."""
    policy, batch = policy_and_batch(kind, of, num_envs=4)
    assert len({len(sequence.index) for sequence in batch.sequences}) > 2
    loss, _ = ppo_loss(policy, batch, pack(batch.sequences), SETTINGS)
    alone = torch.zeros((), dtype=torch.float64)
    for sequence in batch.sequences:
        share = len(sequence.index) / len(batch.actions)
        alone = alone + share * ppo_loss(policy, batch, pack([sequence]), SETTINGS)[0]
    torch.testing.assert_close(loss, alone, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient(loss, policy), gradient(alone, policy), rtol=1e-9, atol=1e-12)


def test_ranks_average_to_the_whole() -> None:
    """Experience split over 2 ranks x 4 environments gives the gradient of 1 rank x 8, to rounding."""
    policy, batch = policy_and_batch(num_envs=8)

    def part(envs: range) -> Packed:
        return pack([sequence for sequence in batch.sequences if sequence.env in envs])

    whole, first, second = (
        gradient(ppo_loss(policy, batch, part(envs), SETTINGS)[0], policy) for envs in (range(8), range(4), range(4, 8))
    )
    assert (first - second).norm() > 0.1 * whole.norm()
    torch.testing.assert_close((first + second) / 2, whole, rtol=1e-9, atol=1e-12)


def test_ratio_is_one_before_the_first_step() -> None:
    """On fresh experience nothing is clipped and the estimated divergence is zero."""
    policy = sharpen(build_policy("small", SPACE, 4, seed=2).double())
    batch = play(policy, SPACE, num_steps=8, num_envs=4)
    _, stats = ppo_loss(policy, batch, pack(batch.sequences), SETTINGS)
    assert float(stats["clip_fraction"]) == 0
    assert float(stats["approx_kl"]) == pytest.approx(0, abs=1e-12)


def test_advantages_are_normalized_only_if_set() -> None:
    """With `normalize_advantages` their scale and offset do not matter; without they do."""
    policy, batch = policy_and_batch()
    scaled = replace(batch, advantages=3 * batch.advantages + 5)
    packed = pack(batch.sequences)

    def policy_loss(of: Batch, settings: LearnSettings) -> float:
        return float(ppo_loss(policy, of, packed, settings)[1]["policy_loss"])

    normalizing = replace(SETTINGS, normalize_advantages=True)
    assert policy_loss(batch, normalizing) == pytest.approx(policy_loss(scaled, normalizing), rel=1e-4)
    assert policy_loss(batch, SETTINGS) != pytest.approx(policy_loss(scaled, SETTINGS), rel=0.1)


def test_update_averages_then_clips() -> None:
    """Gradients are averaged before they are scaled down, and the norm that is told is the averaged gradient's."""
    policy, batch = policy_and_batch()
    packed = pack(batch.sequences)
    unscaled = float(gradient(ppo_loss(policy, batch, packed, SETTINGS)[0], policy).norm())
    assert unscaled / 2 > SETTINGS.max_grad_norm
    before = nn.utils.parameters_to_vector(policy.parameters()).detach()
    calls = []

    def halve(parameters: Listed[nn.Parameter]) -> None:
        calls.append(len(parameters))
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.mul_(0.5)

    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    stats = update(policy, optimizer, batch, packed, SETTINGS, halve)
    moved = nn.utils.parameters_to_vector(policy.parameters()).detach() - before
    assert calls == [len(list(policy.parameters()))]
    assert float(stats["grad_norm"]) == pytest.approx(unscaled / 2, rel=1e-9)
    assert float(moved.norm()) == pytest.approx(SETTINGS.max_grad_norm, rel=1e-4)
    assert mean_stats([stats, stats]) == pytest.approx({name: float(stats[name]) for name in STATS})


def test_adam_follows_the_settings() -> None:
    """The optimiser is Adam with the settings' step size and epsilon, over all parameters."""
    policy = build_policy("small", SPACE, 4, seed=0)
    optimizer = make_optimizer(policy, LearnSettings(learning_rate=0.01, adam_eps=1e-6))
    assert optimizer.defaults["lr"] == 0.01
    assert optimizer.defaults["eps"] == 1e-6
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(policy.parameters()))


def test_sequences_without_samples_of_others() -> None:
    """A mini-batch reads its own samples only: what stands in the others does not matter."""
    policy, batch = policy_and_batch(num_envs=2)
    own: list[Sequence] = [sequence for sequence in batch.sequences if sequence.env == 0]
    spoiled = replace(batch, advantages=batch.advantages.clone(), returns=batch.returns.clone())
    for sequence in batch.sequences:
        if sequence.env == 1:
            spoiled.advantages[sequence.index] = torch.nan
            spoiled.returns[sequence.index] = torch.nan
    clean, same = (ppo_loss(policy, of, pack(own), SETTINGS)[0] for of in (batch, spoiled))
    assert torch.equal(clean, same)
