"""Running statistics against numpy, and against what `VecNormalize` does line by line."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.finite import NotFinite, check_weights
from rlbench.systems.learn.optimizers import make_optimizer
from rlbench.systems.learn.sequences import fixed_runs
from rlbench.systems.policies.normalizing import Moments, Normalizer, RewardScale

Floats = NDArray[np.float64]
DISCOUNT = 0.97
NUM = 3


class RunningMeanStd:
    """`RunningMeanStd` of Stable-Baselines3 2.x, line by line."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, batch: Floats) -> None:
        batch_mean, batch_var, batch_count = np.mean(batch, axis=0), np.var(batch, axis=0), batch.shape[0]
        delta = batch_mean - self.mean
        tot_count = self.count + batch_count
        m_a, m_b = self.var * self.count, batch_var * batch_count
        m_2 = m_a + m_b + np.square(delta) * self.count * batch_count / tot_count
        self.mean = self.mean + delta * batch_count / tot_count
        self.var = m_2 / tot_count
        self.count = batch_count + self.count


class VecNormalize:
    """`VecNormalize.step_wait` of Stable-Baselines3 2.x, line by line: one step of E environments at a time."""

    def __init__(self, num_envs: int, num: int) -> None:
        self.obs_rms, self.ret_rms = RunningMeanStd((num,)), RunningMeanStd(())
        self.returns = np.zeros(num_envs)

    def step(self, obs: Floats, rewards: Floats, dones: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        self.obs_rms.update(obs)
        self.returns = self.returns * DISCOUNT + rewards
        self.ret_rms.update(self.returns)
        scaled = np.clip(rewards / np.sqrt(self.ret_rms.var + 1e-8), -10.0, 10.0)
        self.returns[dones] = 0
        return self.normalize(obs), scaled

    def normalize(self, obs: Floats) -> Floats:
        clipped: Floats = np.clip((obs - self.obs_rms.mean) / np.sqrt(self.obs_rms.var + 1e-8), -10.0, 10.0)
        return clipped


def steps(seed: int, num_steps: int, num_envs: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Vectors [T, E, K] of scales that lie far apart, rewards [T, E], a few of them large, and episodes' ends."""
    generator = np.random.default_rng(seed)
    obs = generator.normal([0.0, 1e4, -3.0], [1e-3, 5.0, 200.0], (num_steps, num_envs, NUM))
    rewards = generator.normal(2.0, 3.0, (num_steps, num_envs)) * generator.choice([1, 50], (num_steps, num_envs))
    return obs, rewards, generator.random((num_steps, num_envs)) < 0.1


def at_once(num_ranks: int, on_rank: Callable[[int, Callable[[Tensor], Tensor]], Any]) -> list[Any]:
    """What each rank returns; the ranks are threads, and get a sum that waits for all of them."""
    sent: list[Tensor] = [torch.zeros(0)] * num_ranks
    barrier = threading.Barrier(num_ranks, timeout=60)

    def run(rank: int) -> Any:
        def total(own: Tensor) -> Tensor:
            sent[rank] = own
            barrier.wait()
            result = torch.stack(sent).sum(0)
            barrier.wait()
            return result

        return on_rank(rank, total)

    with ThreadPoolExecutor(num_ranks) as pool:
        return list(pool.map(run, range(num_ranks)))


def empty() -> Moments:
    """Those of two numbers, without any samples."""
    return Moments.begin(2, count=0.0)


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any),
    center=st.floats(-1e6, 1e6),
    seed=st.integers(0, 99),
)
def test_merged_moments_are_those_of_all_samples(lengths: list[int], center: float, seed: int) -> None:
    """However samples are dealt out, empty parts included, mean and variance are numpy's of all of them."""
    x = np.random.default_rng(seed).normal(center, [1.0, 30.0], (sum(lengths), 2))
    moments = empty()
    for part in np.split(x, np.cumsum(lengths)[:-1]):
        moments = moments.merged(moments.sums(torch.from_numpy(part)))
    assert moments.count == len(x)
    # The first sums are about 0, so that rounding is up to 1e-16 of the mean's square.
    np.testing.assert_allclose(moments.mean, x.mean(0), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(moments.variance, x.var(0), rtol=1e-9, atol=1e-14 * center**2 + 1e-12)


def test_no_samples_change_nothing() -> None:
    """Also when there were none before."""
    for moments in (empty(), Moments.begin(2)):
        same = moments.merged(moments.sums(torch.zeros(0, 2)))
        assert torch.equal(same.count, moments.count)
        assert torch.equal(same.mean, moments.mean)
        assert torch.equal(same.squares, moments.squares)


def test_small_variances_survive_large_means() -> None:
    """Later sums are about the mean so far; squares about 0 would be off by more than the variance itself."""
    x = torch.from_numpy(np.random.default_rng(0).normal(1e9, 1.0, (1000, 2)))
    moments = Moments(count=torch.tensor(1.0).double(), mean=x[0], squares=torch.zeros(2).double())
    moments = moments.merged(moments.sums(x[1:]))
    np.testing.assert_allclose(moments.variance, x.numpy().var(0), rtol=1e-9)
    about_zero = (x.square().mean(0) - x.mean(0).square()).numpy()
    assert (np.abs(about_zero - x.numpy().var(0)) > 1).all()


def test_observations_are_normalised_as_by_vecnormalize() -> None:
    """After each rollout what is observed next is what `VecNormalize` would give, to float32's rounding."""
    normalizer, reference = Normalizer(NUM), VecNormalize(4, NUM)
    for rollout in range(4):
        obs, rewards, dones = steps(rollout, 20, 4)
        for row in zip(obs, rewards, dones, strict=True):
            reference.step(*row)
        normalizer.observe(torch.from_numpy(obs[:9]).reshape(-1, NUM))
        normalizer.observe(torch.from_numpy(obs[9:]).reshape(-1, NUM))
        normalizer.apply_observed()
        np.testing.assert_allclose(normalizer.mean, reference.obs_rms.mean, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(normalizer.variance, reference.obs_rms.var, rtol=1e-6)
        following = steps(99, 1, 50)[0][0] * np.array([1.0, 1.0, 9.0])
        expected = reference.normalize(following)
        assert (np.abs(expected) == 10).any(), "some are clipped"
        np.testing.assert_allclose(normalizer(torch.from_numpy(following)), expected, rtol=1e-5, atol=2e-4)


def test_float64_sums_stand_behind_float32_statistics() -> None:
    """Millions of samples later each rollout still counts, which a float32 count or running mean would lose."""
    normalizer = Normalizer(1)
    normalizer._moments = Moments.begin(1, count=2.0**40)
    for _ in range(2**10):
        normalizer.observe(torch.full((2**12, 1), 2.0**20))
        normalizer.apply_observed()
    share = 2.0**22 / (2.0**40 + 2.0**22)
    assert normalizer.mean.item() == pytest.approx(2.0**20 * share, rel=1e-6)


def test_nothing_changes_before_the_first_apply() -> None:
    """Vectors of any dtype are only clipped, to the bit; observing does not change that."""
    normalizer = Normalizer(NUM)
    x = torch.tensor([[0.3, -7.1, 9.9], [20.0, 0.0, -11.0]])
    for _ in range(2):
        assert torch.equal(normalizer(x), x.clamp(-10, 10))
        normalizer.observe(100 * x)
    assert normalizer(torch.tensor([[1, 0, 1]], dtype=torch.int8)).tolist() == [[1.0, 0.0, 1.0]]
    before = copy.deepcopy(normalizer.state_dict())
    Normalizer(NUM).apply_observed()
    normalizer.apply_observed()
    assert not any(torch.equal(weights, before[name]) for name, weights in normalizer.state_dict().items())
    assert normalizer(x.double()).dtype == torch.float32


def test_two_ranks_are_as_one() -> None:
    """Ranks that add up their sums have equal statistics to the bit: those of one rank that has seen everything."""
    rollouts = [steps(seed, 12, 6)[0] for seed in range(3)]

    def on_rank(rank: int, total: Callable[[Tensor], Tensor]) -> Normalizer:
        normalizer = Normalizer(NUM)
        for obs in rollouts:
            envs = slice(0, 2) if rank == 0 else slice(2, 6)
            normalizer.observe(torch.from_numpy(obs[:, envs]).reshape(-1, NUM))
            normalizer.apply_observed(total)
        return normalizer

    first, second = at_once(2, on_rank)
    alone = Normalizer(NUM)
    for obs in rollouts:
        alone.observe(torch.from_numpy(obs).reshape(-1, NUM))
        alone.apply_observed()
    everything = np.concatenate(rollouts).reshape(-1, NUM)
    for name in ("mean", "variance"):
        assert torch.equal(getattr(first, name), getattr(second, name))
        torch.testing.assert_close(getattr(first, name), getattr(alone, name), rtol=1e-6, atol=1e-12)
    # The prior sample, of which each rank has its own 0.0001, counts once.
    total = len(everything) + 1e-4
    from_prior = 1e-4 / total * (1 + everything.mean(0) ** 2 * len(everything) / total)
    expected = everything.var(0) * len(everything) / total + from_prior
    np.testing.assert_allclose(first.variance, expected, rtol=1e-6)


def test_a_rank_without_samples_goes_along() -> None:
    """It calls the sum too, and has what the others observed."""
    x = torch.randn(50, NUM, generator=torch.Generator().manual_seed(0)) * 4

    def on_rank(rank: int, total: Callable[[Tensor], Tensor]) -> Normalizer:
        normalizer = Normalizer(NUM)
        if rank == 1:
            normalizer.observe(x)
        normalizer.apply_observed(total)
        return normalizer

    idle, busy = at_once(2, on_rank)
    assert torch.equal(idle.variance, busy.variance)
    torch.testing.assert_close(idle.variance, x.var(0, correction=0), rtol=1e-4, atol=0)


def test_statistics_travel_as_weights_and_are_not_learned() -> None:
    """They are among the parameters and in `policy.pt`, while optimisers leave them alone, weight decay too."""
    model = torch.nn.Sequential(Normalizer(NUM), torch.nn.Linear(NUM, 1))
    normalizer = model[0]
    assert isinstance(normalizer, Normalizer)
    normalizer.observe(torch.randn(20, NUM, generator=torch.Generator().manual_seed(0)) + 3)
    normalizer.apply_observed()
    before = copy.deepcopy(model.state_dict())
    assert {"0.mean", "0.variance"} < set(before) == {name for name, _ in model.named_parameters()}
    for optimizer in ("adam", "sgd"):
        settings = LearnSettings(optimizer=optimizer, weight_decay=0.5, learning_rate=0.1)
        steps_weights = make_optimizer(model.parameters(), settings)
        assert len(steps_weights.parameters) == 2
        steps_weights.zero_grad()
        torch.autograd.backward(model(torch.ones(4, NUM)).square().sum())
        norm = torch.nn.utils.clip_grad_norm_(list(model.parameters()), 0.5)
        assert norm.isfinite()
        steps_weights.step()
    after = model.state_dict()
    assert [name for name in before if torch.equal(before[name], after[name])] == ["0.mean", "0.variance"]


def test_broken_statistics_are_found() -> None:
    """An observation that is NaN spoils every later one, so it counts among the weights that must be finite."""
    normalizer = Normalizer(1)
    check_weights(normalizer.parameters())
    normalizer.observe(torch.tensor([[1.0], [math.nan]]))
    normalizer.apply_observed()
    with pytest.raises(NotFinite):
        check_weights(normalizer.parameters())


def test_a_variance_rounded_below_zero_is_zero() -> None:
    """Gossip mixes in float32; a result of NaN would end the run."""
    normalizer = Normalizer(1)
    with torch.no_grad():
        normalizer.variance.fill_(-1e-3)
    assert normalizer(torch.tensor([[0.0], [1.0]])).tolist() == [[0.0], [10.0]]


def tensors(rewards: Floats, ended: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
    """Flat ones, [S]."""
    return torch.from_numpy(rewards).reshape(-1), torch.from_numpy(ended).reshape(-1)


def test_rewards_of_rollouts_of_one_step_are_those_of_vecnormalize() -> None:
    """With an update at every step, as `VecNormalize` has it, all rewards are equal to its rewards."""
    scale, reference = RewardScale(DISCOUNT), VecNormalize(5, NUM)
    clipped = 0
    all_obs, all_rewards, all_dones = steps(0, 60, 5)
    all_rewards[50, 2] = -1e5  # rare enough to lie beyond 10 deviations
    for obs, rewards, dones in zip(all_obs, all_rewards, all_dones, strict=True):
        expected = reference.step(obs, rewards, dones)[1]
        scaled = scale.scale(*tensors(rewards, dones), fixed_runs(1, 5), range(5))
        np.testing.assert_allclose(scaled, expected, rtol=1e-11)
        clipped += int((np.abs(expected) == 10).sum())
    assert clipped, "a reward was clipped"


def test_rewards_of_longer_rollouts_have_the_statistics_at_their_end() -> None:
    """Over rollouts statistics stay those of `VecNormalize`; a rollout's rewards are all scaled with its last ones."""
    scale, reference = RewardScale(DISCOUNT), VecNormalize(5, NUM)
    for rollout in range(4):
        obs, rewards, dones = steps(rollout, 16, 5)
        for row in zip(obs, rewards, dones, strict=True):
            reference.step(*row)
        scaled = scale.scale(*tensors(rewards, dones), fixed_runs(16, 5), range(5))
        variance = reference.ret_rms.var
        np.testing.assert_allclose(scale.moments.variance, [variance], rtol=1e-11)
        expected = np.clip(rewards / np.sqrt(variance + 1e-8), -10, 10)
        np.testing.assert_allclose(scaled, expected.reshape(-1), rtol=1e-11)


def test_the_layout_of_runs_does_not_matter() -> None:
    """Runs of any length, in any layout, several for an environment: as their steps one after the other."""
    generator = np.random.default_rng(3)
    scale, returns, seen = RewardScale(DISCOUNT), dict.fromkeys(range(4), 0.0), []
    for _ in range(5):
        lengths = [int(generator.integers(0, 9)) for _ in range(6)]
        envs = [2, 0, 2, 3, 0, 1]
        runs = np.split(generator.permutation(sum(lengths)), np.cumsum(lengths)[:-1])
        rewards, ended = generator.normal(1, 2, sum(lengths)), generator.random(sum(lengths)) < 0.2
        scale.scale(*tensors(rewards, ended), runs, envs)
        for env, run in zip(envs, runs, strict=True):
            for sample in run:
                returns[env] = DISCOUNT * returns[env] + rewards[sample]
                seen.append(returns[env])
                returns[env] = 0.0 if ended[sample] else returns[env]
    assert scale.moments.count == pytest.approx(len(seen) + 1e-4)
    np.testing.assert_allclose(scale.moments.mean, [np.mean(seen)], rtol=1e-4)
    np.testing.assert_allclose(scale.moments.variance, [np.var(seen)], rtol=1e-4)


def test_samples_in_no_run_are_scaled_but_not_counted() -> None:
    """Such are stale ones, which were counted when they were new; without new ones statistics stay."""
    rewards, ended = tensors(*steps(0, 10, 2)[1:])
    both, one = RewardScale(DISCOUNT), RewardScale(DISCOUNT)
    scaled = both.scale(rewards, ended, fixed_runs(10, 2)[:1], [0])
    assert torch.equal(scaled[::2], one.scale(rewards[::2], ended[::2], fixed_runs(10, 1), [0]))
    assert torch.equal(scaled[1::2], one.scale(rewards[1::2], ended[1::2], [], []))
    assert both.moments.count == one.moments.count == 10 + 1e-4


def test_two_ranks_scale_as_one() -> None:
    """Ranks with half of the environments each have equal statistics, and scale as one rank with all of them."""
    _, rewards, dones = steps(5, 24, 6)

    def on_rank(rank: int, total: Callable[[Tensor], Tensor]) -> tuple[Tensor, RewardScale]:
        scale, mine = RewardScale(DISCOUNT), slice(3 * rank, 3 * rank + 3)
        parts = [
            scale.scale(*tensors(rewards[half, mine], dones[half, mine]), fixed_runs(12, 3), range(3), total)
            for half in (slice(0, 12), slice(12, 24))
        ]
        return torch.cat(parts).reshape(24, 3), scale

    (left, first), (right, second) = at_once(2, on_rank)
    assert torch.equal(first.moments.variance, second.moments.variance)
    alone = RewardScale(DISCOUNT)
    expected = [
        alone.scale(*tensors(rewards[half], dones[half]), fixed_runs(12, 6), range(6))
        for half in (slice(0, 12), slice(12, 24))
    ]
    torch.testing.assert_close(torch.cat((left, right), 1).reshape(-1), torch.cat(expected), rtol=1e-11, atol=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_left_to_fail(value: float) -> None:
    """It is neither clipped, which would hide it, nor does it spoil other environments' rewards."""
    rewards, ended = torch.ones(8), torch.zeros(8, dtype=torch.bool)
    rewards[3] = value
    scaled = RewardScale(DISCOUNT).scale(rewards, ended, fixed_runs(4, 2), range(2))
    assert scaled.isfinite().tolist() == [place != 3 for place in range(8)]
    assert scaled.dtype == rewards.dtype
    torch.testing.assert_close(scaled[3], rewards[3], equal_nan=True)


def test_learning_settings_name_it() -> None:
    """`learn.normalize_rewards` is off unless asked for."""
    assert not LearnSettings().normalize_rewards
    assert replace(LearnSettings(), normalize_rewards=True).normalize_rewards


def test_a_return_ends_where_the_next_episode_begins() -> None:
    """The step that ended the episode before may have been discarded, and so never given."""
    scale = RewardScale(0.9)
    never, start = torch.zeros(1, dtype=torch.bool), torch.ones(1, dtype=torch.bool)
    scale.scale(torch.ones(1), never, [np.array([0])], [0])
    for begins, expected in ((never, 0.9), (start, 0.0)):
        following = copy.deepcopy(scale)
        following.scale(torch.zeros(1), never, [np.array([0])], [0], None, begins)
        assert following._returns.tolist() == [expected]
