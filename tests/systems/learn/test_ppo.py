from __future__ import annotations

import math
from collections.abc import Sequence as Listed
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlbench.harness.contract.settings import CORRECTIONS, LearnSettings
from rlbench.systems.learn.batch import Batch
from rlbench.systems.learn.optimizers import make_optimizer
from rlbench.systems.learn.ppo import STATS, mean_rows, ppo_loss, update
from rlbench.systems.learn.sequences import Packed, Sequence, pack
from rlbench.systems.policies.policy import Policy, build_policy
from tests.systems.actions import choices

from .rollouts import play, sharpen, space

SETTINGS = LearnSettings(entropy_coef=0.02, max_grad_norm=0.1)
SPACE = space()


def policy_and_batch(kind: str = "small", of: gymnasium.spaces.Dict = SPACE, num_envs: int = 8) -> tuple[Policy, Batch]:
    """A float64 policy and what it collected, with log-probabilities so far off that many ratios are clipped."""
    policy = sharpen(build_policy(kind, of, choices(4), seed=2).double())
    batch = play(policy, of, num_steps=12, num_envs=num_envs, settings=SETTINGS)
    noise = 0.3 * torch.randn(batch.log_probs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    # Environments sampled unevenly, as in a variable rollout.
    weights = 0.2 + 2 * torch.rand(
        batch.log_probs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    return policy, replace(batch, log_probs=batch.log_probs + noise, sampling_weights=weights)


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
            obs,
            batch.prev_actions[packed.index],
            batch.starts[packed.index],
            packed.batch_sizes,
            packed.states,
            batch.actions[packed.index],
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
        "mean_weight": 1.0,
    }
    assert {name: float(stat) for name, stat in stats.items()} == pytest.approx(expected, rel=1e-10)
    assert float(loss.detach()) == float(stats["loss"])


@pytest.mark.parametrize("correct", CORRECTIONS)
@pytest.mark.parametrize(("kind", "of"), [("small", SPACE), ("conv", space(pixels=(1, 36, 36)))])
def test_packing_changes_nothing(kind: str, of: gymnasium.spaces.Dict, correct: str) -> None:
    """A packed mini-batch has the loss and the gradient of its sequences run one by one, weighted by their lengths."""
    settings = replace(SETTINGS, correct=correct)
    policy, batch = policy_and_batch(kind, of, num_envs=4)
    assert len({len(sequence.index) for sequence in batch.sequences}) > 2
    loss, _ = ppo_loss(policy, batch, pack(batch.sequences), settings)
    alone = torch.zeros((), dtype=torch.float64)
    for sequence in batch.sequences:
        share = len(sequence.index) / len(batch.actions)
        alone = alone + share * ppo_loss(policy, batch, pack([sequence]), settings)[0]
    torch.testing.assert_close(loss, alone, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient(loss, policy), gradient(alone, policy), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("correct", CORRECTIONS)
def test_ranks_average_to_the_whole(correct: str) -> None:
    """Experience split over 2 ranks x 4 environments gives the gradient of 1 rank x 8, to rounding."""
    settings = replace(SETTINGS, correct=correct)
    policy, batch = policy_and_batch(num_envs=8)

    def part(envs: range) -> Packed:
        return pack([sequence for sequence in batch.sequences if sequence.env in envs])

    whole, first, second = (
        gradient(ppo_loss(policy, batch, part(envs), settings)[0], policy) for envs in (range(8), range(4), range(4, 8))
    )
    assert (first - second).norm() > 0.1 * whole.norm()
    torch.testing.assert_close((first + second) / 2, whole, rtol=1e-9, atol=1e-12)


def test_truncated_is_by_hand() -> None:
    """`truncated_is` weighs each sample's part of all three terms of the loss with its weight, at most `rho`."""
    policy, batch = policy_and_batch(num_envs=3)
    packed = pack(batch.sequences)
    settings = replace(SETTINGS, correct="truncated_is", rho=0.9)
    loss, stats = ppo_loss(policy, batch, packed, settings)
    expected, weights = 0.0, []
    for sequence in batch.sequences:
        with torch.no_grad():
            log_probs, entropies, values = policy.evaluate(
                {key: entries[sequence.index] for key, entries in batch.obs.items()},
                batch.prev_actions[sequence.index],
                batch.starts[sequence.index],
                torch.ones(len(sequence.index), dtype=torch.int64),
                sequence.state.unsqueeze(0),
                batch.actions[sequence.index],
            )
        for place, sample in enumerate(sequence.index.tolist()):
            ratio = math.exp(float(log_probs[place]) - float(batch.log_probs[sample]))
            advantage = float(batch.advantages[sample])
            surrogate = min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
            error = (float(values[place]) - float(batch.returns[sample])) ** 2
            weights.append(min(0.9, float(batch.sampling_weights[sample])))
            expected += weights[-1] * (-surrogate + 0.5 * 0.5 * error - 0.02 * float(entropies[place]))
    assert 0.2 < np.mean(np.array(weights) == 0.9) < 0.9
    assert float(loss.detach()) == pytest.approx(expected / len(weights), rel=1e-10)
    assert float(stats["mean_weight"]) == pytest.approx(np.mean(weights), rel=1e-10)


def test_truncated_is_of_equal_environments() -> None:
    """Where all environments have the same number of samples, `truncated_is` changes nothing."""
    policy = sharpen(build_policy("small", SPACE, choices(4), seed=2).double())
    batch = play(policy, SPACE, num_steps=8, num_envs=4)
    with_and_without = [replace(SETTINGS, correct=correct) for correct in ("truncated_is", "none")]
    ours, plain = (ppo_loss(policy, batch, pack(batch.sequences), settings)[0] for settings in with_and_without)
    assert torch.equal(ours, plain)


def test_vtrace_on_fresh_experience_is_gae_1() -> None:
    """Without lag V-trace's loss is that of GAE with lambda 1: both are the return to the end of run or episode."""
    policy = sharpen(build_policy("small", SPACE, choices(4), seed=2).double())
    settings = replace(SETTINGS, gae_lambda=1.0)
    batch = play(policy, SPACE, num_steps=12, num_envs=4, settings=settings)
    packed = pack(batch.sequences)
    plain, corrected = (
        ppo_loss(policy, batch, packed, replace(settings, correct=correct))[0] for correct in ("none", "vtrace")
    )
    torch.testing.assert_close(corrected, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient(corrected, policy), gradient(plain, policy), rtol=1e-8, atol=1e-9)


def test_vtrace_of_a_cut_sequence() -> None:
    """Where a mini-batch ends within a run, what follows is the next sample's value under the acting weights."""
    policy, batch = policy_and_batch(num_envs=2)
    longest = max(batch.sequences, key=lambda sequence: len(sequence.index))
    head, rest = longest.index[:-1], int(longest.index[-1])
    packed = pack([replace(longest, index=head)])
    settings = replace(SETTINGS, correct="vtrace", discount=0.9)
    changed = batch.next_values.clone()
    changed[head[-1]] += 1
    assert float(batch.next_values[head[-1]]) == float(batch.values[rest])
    before, after = (ppo_loss(policy, of, packed, settings)[0] for of in (batch, replace(batch, next_values=changed)))
    assert float(before.detach()) != float(after.detach())
    changed[rest] = torch.nan
    changed[head[:-1]] = torch.nan
    assert torch.equal(ppo_loss(policy, replace(batch, next_values=changed), packed, settings)[0], after)


def test_clip_range_is_the_settings() -> None:
    """`clip_low` moves the lower end of the range alone."""
    policy, batch = policy_and_batch()
    packed = pack(batch.sequences)

    def clip_fraction(settings: LearnSettings) -> float:
        return float(ppo_loss(policy, batch, packed, settings)[1]["clip_fraction"])

    symmetric, lower = (clip_fraction(replace(SETTINGS, clip=0.1, clip_low=low)) for low in (0.0, 0.5))
    wide = clip_fraction(replace(SETTINGS, clip=0.5))
    assert wide < lower < symmetric
    assert clip_fraction(replace(SETTINGS, clip=0.1, clip_low=0.9)) == symmetric


def test_ratio_is_one_before_the_first_step() -> None:
    """On fresh experience nothing is clipped and the estimated divergence is zero."""
    policy = sharpen(build_policy("small", SPACE, choices(4), seed=2).double())
    batch = play(policy, SPACE, num_steps=8, num_envs=4)
    _, stats = ppo_loss(policy, batch, pack(batch.sequences), SETTINGS)
    assert float(stats["clip_fraction"]) == 0
    assert float(stats["approx_kl"]) == pytest.approx(0, abs=1e-12)


def test_advantages_are_normalized_only_if_set() -> None:
    """Over a rank's mini-batch or all of them, their scale and offset do not matter; with `none` they do."""
    policy, batch = policy_and_batch()
    scaled = replace(batch, advantages=3 * batch.advantages + 5)
    packed = pack(batch.sequences)

    def policy_loss(of: Batch, settings: LearnSettings) -> float:
        return float(ppo_loss(policy, of, packed, settings)[1]["policy_loss"])

    for over in ("rank", "all"):
        normalizing = replace(SETTINGS, normalize_advantages=over)
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

    optimizer = make_optimizer(policy.parameters(), LearnSettings(optimizer="sgd", learning_rate=1.0, momentum=0.0))
    stats = update(policy, optimizer, batch, packed, SETTINGS, halve)
    moved = nn.utils.parameters_to_vector(policy.parameters()).detach() - before
    assert calls == [len(list(policy.parameters()))]
    assert float(stats["grad_norm"]) == pytest.approx(unscaled / 2, rel=1e-9)
    assert float(moved.norm()) == pytest.approx(SETTINGS.max_grad_norm, rel=1e-4)
    assert mean_rows([stats, stats])[1].tolist() == pytest.approx([float(stats[name]) for name in STATS])


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
