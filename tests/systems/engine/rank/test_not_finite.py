"""Learning that leaves the numbers: said at the first update, with iteration and environment."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
import torch

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.engine.rank import learner
from rlbench.systems.learn import finite
from rlbench.systems.learn.finite import NotFinite, check_weights, gather
from rlbench.systems.learn.ppo import STATS, mean_rows
from tests.systems.engine.rank.test_learner import NUM_ENVS, NUM_STEPS, SETTINGS, Bench

HUGE = 3e38
"""A number of float32 whose square is none."""


class Make(Protocol):
    """Makes a bench on a whole rollout."""

    def __call__(self, settings: LearnSettings = SETTINGS) -> Bench:
        """With these settings."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Closes the meters of the benches that it has made."""
    made: list[Bench] = []

    def bench(settings: LearnSettings = SETTINGS) -> Bench:
        made.append(Bench(tmp_path / f"bench{len(made)}", NUM_STEPS, NUM_STEPS, settings=settings))
        return made[-1]

    yield bench
    for one in made:
        one.meter.close()


def learn(bench: Bench) -> None:
    """One learning phase."""
    bench.learner.learn(bench.table, bench.experience)


def spoil(bench: Bench, env: int, reward: float) -> None:
    """Gives one step of an environment a reward."""
    run = bench.experience.runs[list(bench.experience.envs).index(env)]
    bench.table["reward"][run[2]] = reward


@pytest.mark.parametrize("correct", ["none", "vtrace", "truncated_is"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_loss_that_is_none_names_iteration_update_and_environment(make: Make, correct: str, optimizer: str) -> None:
    """The first update, counted from 1; the iteration and the environment from 0, as everywhere."""
    settings = replace(SETTINGS, correct=correct, optimizer=optimizer)
    bench = make(settings)
    spoil(bench, 2, HUGE)
    bench.learner._first_env, bench.learner._num_phases = 4, 7
    with pytest.raises(NotFinite) as told:
        learn(bench)
    text = str(told.value)
    assert text.startswith(("iteration 7, update 1 of 6: loss is ", "iteration 7, update 2 of 6: loss is "))
    assert text.endswith("it must be finite; most likely for environment 6, which gave the reward 3e+38")


def test_a_phase_before_is_counted(make: Make) -> None:
    """Two that went well, then one that did not: iteration 2."""
    bench = make()
    for _ in range(2):
        learn(bench)
    spoil(bench, 0, -HUGE)
    with pytest.raises(NotFinite, match=r"^iteration 2, .* environment 0, which gave the reward -3e"):
        learn(bench)


def test_a_rank_without_a_suspect_lets_others_speak_first(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of another rank may be the cause; the rank whose environment it is raises before."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    bench = make()
    bench.learner._others_learn = True

    def average(parameters: list[torch.nn.Parameter]) -> None:
        parameters[0].grad = torch.full_like(parameters[0], math.nan)

    monkeypatch.setattr(bench.averager, "average_gradients", average)
    with pytest.raises(NotFinite, match=r"^iteration 0, update 1 of 6: grad_norm is nan, .* another rank sent may$"):
        learn(bench)
    assert slept == [learner.LET_SPEAK_S]


def test_weights_are_looked_at_too(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an averager puts into them after the last update is in no loss yet."""
    bench = make(LearnSettings(epochs=1, num_minibatches=1))

    def poison() -> None:
        with torch.no_grad():
            next(bench.policy.parameters()).view(-1)[0] = math.inf

    monkeypatch.setattr(bench.averager, "end_update", poison)
    with pytest.raises(NotFinite, match=r"^iteration 0, update 1 of 1: weights are inf"):
        learn(bench)


def test_what_is_gathered_are_the_means(make: Make) -> None:
    """To the bit, and nothing is said of what is finite."""
    policy = make().policy
    generator = torch.Generator().manual_seed(0)
    stats = [{name: torch.randn((), generator=generator) for name in STATS} for _ in range(5)]
    means = dict(zip(STATS, mean_rows(stats)[1].tolist(), strict=True))
    assert gather(stats, policy.parameters()) == (means, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_none_are_not_left(value: float) -> None:
    """One of many."""
    weights = [torch.nn.Parameter(torch.ones(3, 3)), torch.nn.Parameter(torch.ones(5))]
    check_weights(weights)
    with torch.no_grad():
        weights[1][4] = value
    with pytest.raises(NotFinite, match="they must be finite"):
        check_weights(weights)


def test_huge_weights_are_finite() -> None:
    """Though their sum and their squares are not."""
    check_weights([torch.nn.Parameter(torch.full((100,), 3e38))])


def test_the_environment_with_broken_returns_comes_before_a_large_reward(make: Make) -> None:
    """Returns that are not finite are named before what is only large."""
    bench = make()
    spoil(bench, 1, 50.0)
    batch = bench.learner._batch(bench.table, bench.experience)
    suspect = finite.most_likely(batch, bench.experience.runs, bench.experience.envs)
    assert (suspect.env, suspect.reward, suspect.is_clear) == (1, 50.0, False)
    rows = np.split(np.arange(NUM_ENVS * NUM_STEPS), NUM_ENVS)
    batch.returns[rows[3][0]] = math.nan
    suspect = finite.most_likely(batch, bench.experience.runs, bench.experience.envs)
    assert (suspect.env, suspect.is_clear) == (3, True)
