"""The small policy's step in numpy against torch's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from rlbench.systems.policies.few_rows import MOST_ROWS, THREADS_VARIABLE, FewRows
from rlbench.systems.policies.policy import Policy, build_policy
from tests.systems.actions import choices

NUM_ACTIONS = 5
Entries = dict[str, gymnasium.spaces.Space[Any]]
VECTORS: Entries = {
    "goal": gymnasium.spaces.Box(-9, 9, (3,), np.float32),
    "flags": gymnasium.spaces.Box(0, 1, (2,), np.uint8),
}
DEPTH: Entries = {"depth": gymnasium.spaces.Box(0, 20, (1, 64, 64), np.float32)}
RANKS: Entries = {
    "speed": gymnasium.spaces.Box(-9, 9, (), np.float32),
    "map": gymnasium.spaces.Box(-9, 9, (2, 3), np.float64),
}
SPACES = {"vectors": VECTORS, "depth": DEPTH, "both": VECTORS | DEPTH, "ranks": RANKS}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the launcher of ranks sets."""
    monkeypatch.setenv(THREADS_VARIABLE, "1")


def policy_of(entries: Entries, kind: str = "small") -> Policy:
    """A policy whose weights are all away from where they begin: no bias is 0, and actions differ."""
    policy = build_policy(kind, gymnasium.spaces.Dict(entries), choices(NUM_ACTIONS), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return policy


def few_rows(policy: Policy) -> FewRows:
    """The same in numpy."""
    made = FewRows.of(policy)
    assert made is not None
    return made


def observed(entries: Entries, num: int, seed: int) -> dict[str, NDArray[Any]]:
    """Random observations, some numbers of which are 0."""
    generator = np.random.default_rng(seed)
    obs = {}
    for key, box in entries.items():
        assert isinstance(box, gymnasium.spaces.Box)
        values = generator.uniform(box.low.min(), box.high.max() + 1, (num, *box.shape)).astype(box.dtype)
        values[generator.random(values.shape) < 0.1] = 0
        obs[key] = values
    return obs


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("num", [1, 3, MOST_ROWS])
def test_it_computes_what_torch_does(name: str, num: int) -> None:
    """Log-probabilities, values and states over three steps, some of which begin an episode."""
    policy = policy_of(SPACES[name])
    ours, generator = few_rows(policy), np.random.default_rng(3)
    state = generator.normal(size=(num, policy.state_size)).astype(np.float32)
    for step in range(3):
        obs = observed(SPACES[name], num, seed=step)
        prev_actions = generator.integers(NUM_ACTIONS, size=(num, 1))
        starts = generator.random(num) < 1 / (1 + NUM_ACTIONS)
        with torch.no_grad():
            hidden, after = policy._step(
                {key: torch.from_numpy(values) for key, values in obs.items()},
                torch.from_numpy(prev_actions),
                torch.from_numpy(starts),
                torch.from_numpy(state.copy()),
            )
            distribution, values_of_torch = policy._heads(hidden)
        actions, chosen, our_values, state = ours.act(obs, prev_actions, starts, state, generator)
        log_probs = distribution.log_prob(torch.from_numpy(actions)).detach().numpy()
        np.testing.assert_allclose(chosen, log_probs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(our_values, values_of_torch.numpy(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state, after.numpy(), rtol=1e-5, atol=1e-5)
        assert all(each.dtype == np.float32 for each in (chosen, our_values, state))


def test_extreme_weights_overflow_nothing() -> None:
    """Gates far beyond where the exponential function ends, and certain actions, give finite numbers."""
    policy = policy_of(VECTORS)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1000)
    obs, state = observed(VECTORS, 4, seed=0), np.ones((4, policy.state_size), np.float32)
    actions, *others = few_rows(policy).act(
        obs, np.array([[0], [0], [1], [2]]), np.arange(4) == 0, state, np.random.default_rng(0)
    )
    assert all(np.isfinite(each).all() for each in others)
    assert ((actions >= 0) & (actions < NUM_ACTIONS)).all()


def test_actions_are_drawn_from_the_policy() -> None:
    """Of 20,000 draws for one observation each action has its share (chi-squared, 0.1 %)."""
    policy = policy_of(VECTORS)
    num, generator = 20_000, np.random.default_rng(0)
    obs = {key: np.repeat(values, num, axis=0) for key, values in observed(VECTORS, 1, seed=5).items()}
    state = np.zeros((num, policy.state_size), np.float32)
    actions, chosen, *_ = few_rows(policy).act(
        obs, np.zeros((num, 1), np.int64), np.ones(num, np.bool_), state, generator
    )
    expected = np.zeros(NUM_ACTIONS)
    expected[actions[:, 0]] = np.exp(chosen.astype(np.float64))
    assert expected.sum() == pytest.approx(1, abs=1e-5)
    counts = np.bincount(actions[:, 0], minlength=NUM_ACTIONS)
    assert stats.chisquare(counts, expected / expected.sum() * num).pvalue > 0.001


def test_new_weights_are_seen() -> None:
    """It acts with what an optimiser's step, or a load, has just written."""
    policy = policy_of(VECTORS)
    ours = few_rows(policy)
    newer = policy_of(VECTORS)
    with torch.no_grad():
        for parameter in newer.parameters():
            parameter.mul_(1.5)
    obs, state = observed(VECTORS, 2, seed=0), np.zeros((2, policy.state_size), np.float32)

    def values(acting: FewRows) -> NDArray[np.float32]:
        return acting.act(obs, np.array([[0], [1]]), np.zeros(2, np.bool_), state.copy(), np.random.default_rng(0))[2]

    assert not np.array_equal(values(ours), values(few_rows(newer)))
    policy.load_state_dict(newer.state_dict())
    assert np.array_equal(values(ours), values(few_rows(newer)))


def test_other_policies_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels, classes, other kinds and types, columns of unequal width; and where numpy may start threads."""
    pixels: Entries = {"pixels": gymnasium.spaces.Box(0, 255, (3, 64, 64), np.uint8)}
    odd: Entries = {"depth": gymnasium.spaces.Box(0, 20, (1, 64, 60), np.float32)}
    assert FewRows.of(policy_of(pixels)) is None
    assert FewRows.of(policy_of(pixels, kind="conv")) is None
    assert FewRows.of(policy_of(odd)) is None
    assert FewRows.of(policy_of({"count": gymnasium.spaces.Discrete(3)})) is None
    assert FewRows.of(policy_of(VECTORS).double()) is None
    assert FewRows.of(torch.nn.Linear(2, 2)) is None
    monkeypatch.delenv(THREADS_VARIABLE)
    assert FewRows.of(policy_of(VECTORS)) is None
