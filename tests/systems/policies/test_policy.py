from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Text

from rlbench.systems.learn.sequences import pack
from rlbench.systems.policies.policy import KINDS, build_policy
from tests.systems.actions import choices, no_action
from tests.systems.learn.rollouts import GOAL, play, random_obs, sharpen, space

SPACES = {
    "small": space(depth=20, pixels=(3, 24, 30)),
    "conv": space(pixels=(3, 36, 40)),
    "nature": space(pixels=(3, 36, 40)),
    "resnet": space(depth=64),
    "auto": space(pixels=(3, 36, 40)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_act_and_evaluate_agree(kind: str) -> None:
    """Over whole sequences, with episodes that end within, `evaluate` gives what `act` gave step by step."""
    policy = sharpen(build_policy(kind, SPACES[kind], choices(4), seed=1).double())
    batch = play(policy, SPACES[kind], num_steps=12, num_envs=3)
    assert len(batch.sequences) > 3, "an episode ends within the rollout"
    packed = pack(batch.sequences)
    obs = {key: entries[packed.index] for key, entries in batch.obs.items()}
    with torch.no_grad():
        log_probs, entropies, values = policy.evaluate(
            obs,
            batch.prev_actions[packed.index],
            batch.starts[packed.index],
            packed.batch_sizes,
            packed.states,
            batch.actions[packed.index],
        )
    torch.testing.assert_close(log_probs, batch.log_probs[packed.index], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(values, batch.values[packed.index], rtol=1e-9, atol=1e-9)
    assert log_probs.std() > 0.01, "the policy is not uniform"
    assert ((entropies > 0) & (entropies < torch.log(torch.tensor(4.0)))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_follow_the_seed(kind: str) -> None:
    """One seed gives one set of finite weights, another seed another, torch's global random state stays."""
    before = torch.get_rng_state()
    first, again, other = (build_policy(kind, SPACES[kind], choices(4), seed=seed).state_dict() for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    for name, weights in first.items():
        assert torch.isfinite(weights).all(), name
        assert torch.equal(weights, again[name]), name
    assert any(not torch.equal(weights, other[name]) for name, weights in first.items())


def test_sampling() -> None:
    """Actions come with their probabilities, and are the same for the same generator seed."""
    of = space()
    policy = sharpen(build_policy("small", of, choices(3), seed=0))
    num = 20_000
    one = random_obs(of, 1, torch.Generator().manual_seed(0))["goal"].expand(num, 3)
    arguments = ({"goal": one}, *no_action(num), policy.initial_state(num))
    actions, log_probs, _, _ = policy.act(*arguments, torch.Generator().manual_seed(5))
    for action in range(3):
        chosen = actions[:, 0] == action
        probability = log_probs[chosen][0].exp()
        assert 0.05 < probability < 0.95
        assert abs(chosen.float().mean() - probability) < 4 * (0.25 / num) ** 0.5
    assert torch.equal(actions, policy.act(*arguments, torch.Generator().manual_seed(5))[0])
    assert not torch.equal(actions, policy.act(*arguments, torch.Generator().manual_seed(6))[0])


def test_state_is_reset_at_episode_starts() -> None:
    """At an episode's first step neither the state that comes in nor the previous action matters; elsewhere both do."""
    of = space()
    policy = build_policy("small", of, choices(3), seed=0)
    obs = random_obs(of, 2, torch.Generator().manual_seed(0))
    prev_actions, starts = torch.tensor([[1], [1]]), torch.tensor([True, False])
    zero = policy.initial_state(2)
    fresh, worn = (policy.value(obs, prev_actions, starts, state) for state in (zero, zero + 0.5))
    assert fresh[0] == worn[0]
    assert fresh[1] != worn[1]
    others = policy.value(obs, prev_actions + 1, starts, zero)
    assert fresh[0] == others[0]
    assert fresh[1] != others[1]
    assert torch.equal(policy.act(obs, prev_actions, starts, zero, torch.Generator())[2], fresh)


@pytest.mark.parametrize("kind", KINDS)
def test_first_actions_are_nearly_uniform(kind: str) -> None:
    """A new policy prefers no action, so that it explores."""
    policy = build_policy(kind, SPACES[kind], choices(4), seed=0)
    obs = random_obs(SPACES[kind], 4, torch.Generator().manual_seed(0))
    _, log_probs, values, _ = policy.act(obs, *no_action(4), policy.initial_state(4), torch.Generator())
    torch.testing.assert_close(log_probs.exp(), torch.full((4,), 0.25), rtol=0, atol=0.03)
    assert torch.isfinite(values).all()


@pytest.mark.parametrize(
    ("kind", "size"), [("small", 2 * 128), ("conv", 2 * 512), ("nature", 0), ("resnet", 2 * 2 * 512)]
)
def test_state_is_one_column(kind: str, size: int) -> None:
    """The recurrent state of an environment is one row of `state_size` numbers, for all layers together."""
    policy = build_policy(kind, SPACES[kind], choices(4), seed=0)
    assert policy.state_size == size
    obs = random_obs(SPACES[kind], 2, torch.Generator().manual_seed(0))
    state = policy.act(obs, *no_action(2), policy.initial_state(2), torch.Generator())[3]
    assert state.shape == (2, size)
    assert state.is_contiguous()


@pytest.mark.parametrize("kind", KINDS)
def test_follows_the_device(kind: str) -> None:
    """Nothing but the batch sizes is tied to the CPU: the packed pass runs wherever weights and tensors are."""
    policy = build_policy(kind, SPACES[kind], choices(4), seed=0).to("meta")
    obs = {key: entry.to("meta") for key, entry in random_obs(SPACES[kind], 3, torch.Generator()).items()}
    actions, starts = (tensor.to("meta") for tensor in no_action(3))
    outputs = policy.evaluate(obs, actions, starts, torch.tensor([2, 1]), policy.initial_state(2), actions)
    assert all(output.device.type == "meta" and output.shape == (3,) for output in outputs)


@pytest.mark.parametrize(
    ("kind", "of", "message"),
    [
        ("large", space(), "policy large: unknown; must be one of: auto, small, conv, nature, resnet"),
        ("conv", space(), "policy conv: must have 'pixels' or 'depth'"),
        ("resnet", space(depth=63), "policy resnet: images must be at least 64x64, are 63x63"),
        ("conv", space(pixels=(1, 35, 84)), "policy conv: images must be at least 36x36, are 35x84"),
        ("small", space(pixels=(1, 84, 23)), "policy small: images must be at least 24x24, are 84x23"),
        ("resnet", space(pixels=(3, 64, 64), depth=65), "policy resnet: 'pixels' and 'depth' must have one size"),
        ("small", Dict({"depth": GOAL}), r"observation 'depth': must have shape \(C, H, W\), has \(3,\)"),
        ("small", Dict({"name": Text(3)}), "observation 'name': must be a Box, Discrete, MultiDiscrete or MultiBinary"),
        ("small", Dict({}), "observation space: must have an entry"),
    ],
)
def test_refuses(kind: str, of: gymnasium.spaces.Dict, message: str) -> None:
    """A policy that is unknown, or that cannot read the observations, is refused in one line that says why."""
    with pytest.raises(ValueError, match=message) as refusal:
        build_policy(kind, of, choices(4), seed=0)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("num_at_once", [1, 4, 5])
def test_images_in_parts(monkeypatch: pytest.MonkeyPatch, num_at_once: int) -> None:
    """However many images go through the convolutions at a time, the values and gradients are the same."""
    of = space(pixels=(3, 36, 40), depth=0)
    policy = sharpen(build_policy("conv", of, choices(4), seed=1).double())
    batch = play(policy, of, num_steps=3, num_envs=3)
    results = []
    for most in (num_at_once, 1000):
        monkeypatch.setattr("rlbench.systems.policies.encoders.NUM_AT_ONCE", most)
        policy.zero_grad()
        features = policy.encoder(batch.obs)
        torch.autograd.backward(features.square().sum())
        results.append([features, *(parameter.grad for parameter in policy.encoder.parameters())])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_running_moments_are_of_boxes_alone() -> None:
    """Numbers of any dtype, flags of a Box too, side by side; what counts or is an image stays as it is."""
    flags = Box(0, 1, (2,), np.bool_)  # type: ignore[arg-type]  # gymnasium's stub
    of = Dict({"flags": flags, "speed": Box(-9, 9, (3,), np.float32), "facing": Discrete(4)})
    policy = build_policy("auto", of, choices(3), seed=0, normalizes=True)
    assert policy.normalizer is not None
    obs = {"flags": torch.tensor([[True, False]] * 4), "speed": torch.ones(4, 3), "facing": torch.zeros(4).long()}
    fresh = policy.value(obs, *no_action(4), policy.initial_state(4))
    policy.observe(obs)
    policy.normalizer.apply_observed()
    assert policy.normalizer.mean.tolist() == pytest.approx([1, 0, 1, 1, 1], abs=1e-3)
    assert not torch.equal(policy.value(obs, *no_action(4), policy.initial_state(4)), fresh)
