from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.batch import Batch, make_batch, sampling_weights
from rlbench.systems.learn.gae import next_values


def batch_of(runs: list[list[int]], envs: list[int], starts: list[int], states: Tensor) -> Batch:
    """A batch of these runs with random experience; `starts` are the first steps of episodes."""
    size = sum(map(len, runs))
    generator = torch.Generator().manual_seed(0)
    log_probs, values, rewards, bootstrap = torch.randn(4, size, generator=generator)
    begun = torch.zeros(size, dtype=torch.bool)
    begun[starts] = True
    return make_batch(
        runs=[np.array(run, np.int64) for run in runs],
        envs=envs,
        states=states,
        obs={},
        actions=torch.zeros(size, 1, dtype=torch.int64),
        prev_actions=torch.zeros(size, 1, dtype=torch.int64),
        starts=begun,
        log_probs=log_probs,
        values=values,
        rewards=rewards,
        terminated=torch.zeros(size, dtype=torch.bool),
        truncated=torch.zeros(size, dtype=torch.bool),
        bootstrap=bootstrap,
        steps_per_env=size / len(set(envs)),
        settings=LearnSettings(),
    )


def test_one_environment_with_two_runs() -> None:
    """A stale and a fresh run of one environment are sequences of it, each from its own state, and do not touch."""
    states = torch.arange(7.0).unsqueeze(1)
    batch = batch_of([[4, 5, 6], [0, 2], [1, 3]], [1, 0, 1], [2], states)
    assert [(s.env, s.index.tolist(), s.state.tolist()) for s in batch.sequences] == [
        (1, [4, 5, 6], [4.0]),
        (0, [0], [0.0]),
        (0, [2], [0.0]),
        (1, [1, 3], [1.0]),
    ]
    assert torch.equal(batch.next_values[[6, 3]], batch.bootstrap[[6, 3]])
    assert torch.equal(batch.next_values[[4, 5, 1]], batch.values[[5, 6, 3]])


def test_next_values() -> None:
    """0 after a termination, `bootstrap` after a truncation and a run's end, else the next sample's value."""
    runs = [np.array(run, np.int64) for run in ([5, 3, 1], [0, 2, 4], [6], [])]
    values, bootstrap = torch.arange(7.0), 10 + torch.arange(7.0)
    terminated, truncated = torch.zeros(2, 7, dtype=torch.bool)
    terminated[[0, 6]] = True
    truncated[[0, 3]] = True  # both: counts as terminated
    assert next_values(runs, values, terminated, truncated, bootstrap).tolist() == [0, 11, 4, 13, 14, 3, 0]


def test_sampling_weights() -> None:
    """Every environment weighs the same, a third each here, however many samples and runs it has."""
    runs = [np.array(run, np.int64) for run in ([0, 1, 2], [3], [4, 5], [6, 7])]
    weights = sampling_weights(runs, [2, 0, 2, 1], 8 / 3)
    assert weights.tolist() == pytest.approx([8 / 15] * 3 + [8 / 3] + [8 / 15] * 2 + [8 / 6] * 2)
    for samples in ([0, 1, 2, 4, 5], [3], [6, 7]):
        assert float(weights[samples].sum()) == pytest.approx(8 / 3)


def test_agents_of_an_environment_weigh_as_one() -> None:
    """Environments weigh the same, half each here, whichever of their two agents were there for how long."""
    runs = [np.array(run, np.int64) for run in ([0, 1, 2], [3], [4, 5])]  # of agents 0 and 1, and of agent 3
    numbers, flags = torch.zeros(6), torch.zeros(6, dtype=torch.bool)
    of_samples: dict[str, Any] = dict.fromkeys(("log_probs", "values", "rewards", "bootstrap"), numbers)
    of_samples |= dict.fromkeys(("actions", "prev_actions", "states"), numbers[:, None])
    of_samples |= dict.fromkeys(("starts", "terminated", "truncated"), flags)
    settings = LearnSettings()
    batch = make_batch(runs=runs, envs=[0, 1, 3], obs={}, steps_per_env=3.0, settings=settings, agents=2, **of_samples)
    assert batch.sampling_weights.tolist() == pytest.approx([3 / 4] * 4 + [3 / 2] * 2)
    assert [sequence.env for sequence in batch.sequences] == [0, 1, 3]


def test_an_environment_without_samples_changes_no_weight() -> None:
    """One of four environments is stuck: the weights of the others are T / S_e, as VER's authors compute them."""
    counts = (130, 64, 62)
    ends = np.cumsum(counts)
    runs = np.split(np.arange(ends[-1]), ends[:-1])
    weights = sampling_weights(runs, [0, 1, 3], 64)
    assert weights[ends - 1].tolist() == pytest.approx([64 / 130, 1.0, 64 / 62])
