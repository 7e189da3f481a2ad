from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.batch import make_batch
from rlbench.systems.learn.optimizers import make_optimizer
from rlbench.systems.learn.ppo import mean_rows, update
from rlbench.systems.learn.sequences import fixed_runs, pack, split_by_env
from rlbench.systems.policies.policy import Policy, build_policy
from tests.systems.actions import choices

NUM_ENVS = 16
NUM_STEPS = 22
EPISODE_STEPS = 5
SPACE = Dict({"cue": Box(-1, 1, (2,), np.float32)})
SETTINGS = LearnSettings(learning_rate=3e-3, epochs=2, num_minibatches=2)


class Recall:
    """N copies of a memory task: the first observation tells which of two actions pays in the fifth and last step."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.clock = torch.arange(NUM_ENVS) % EPISODE_STEPS  # the environments are out of step with each other
        self.answers = torch.randint(0, 2, (NUM_ENVS,), generator=self.generator)

    def observe(self) -> dict[str, Tensor]:
        """The cue, +1 or -1, in the first step only; and whether it is the last step."""
        cue = torch.where(self.clock == 0, 2.0 * self.answers - 1, 0.0)
        return {"cue": torch.stack((cue, (self.clock == EPISODE_STEPS - 1).float()), 1)}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(rewards, ends of episodes)."""
        ended = self.clock == EPISODE_STEPS - 1
        rewards = (ended & (actions == self.answers)).float()
        self.clock = torch.where(ended, 0, self.clock + 1)
        new_answers = torch.randint(0, 2, (NUM_ENVS,), generator=self.generator)
        self.answers = torch.where(ended, new_answers, self.answers)
        return rewards, ended


def train(num_rollouts: int, seed: int) -> tuple[list[float], Policy]:
    """Success in the episodes of each rollout, and the trained policy."""
    policy = build_policy("small", SPACE, choices(2), seed)
    optimizer = make_optimizer(policy.parameters(), SETTINGS)
    generator = torch.Generator().manual_seed(seed)
    task = Recall(seed)
    state, prev_actions = policy.initial_state(NUM_ENVS), torch.zeros(NUM_ENVS, 1, dtype=torch.int64)
    starts = torch.ones(NUM_ENVS, dtype=torch.bool)
    successes = []
    for _ in range(num_rollouts):
        rows: list[tuple[Tensor, ...]] = []
        for _ in range(NUM_STEPS):
            cue, before = task.observe()["cue"], state
            actions, log_probs, values, state = policy.act({"cue": cue}, prev_actions, starts, state, generator)
            rewards, ended = task.step(actions[:, 0])
            rows.append((cue, before, actions, prev_actions, starts, log_probs, values, rewards, ended))
            prev_actions, starts = actions, ended
        columns = map(torch.cat, zip(*rows, strict=True))
        cues, states, actions, befores, begun, log_probs, values, rewards, ended = columns
        bootstrap = torch.zeros_like(values)
        bootstrap[-NUM_ENVS:] = policy.value(task.observe(), prev_actions, starts, state)
        batch = make_batch(
            runs=fixed_runs(NUM_STEPS, NUM_ENVS),
            envs=range(NUM_ENVS),
            states=states,
            obs={"cue": cues},
            actions=actions,
            prev_actions=befores,
            starts=begun,
            log_probs=log_probs,
            values=values,
            rewards=rewards,
            terminated=ended,
            truncated=torch.zeros_like(ended),
            bootstrap=bootstrap,
            steps_per_env=NUM_STEPS,
            settings=SETTINGS,
        )
        stats = [
            update(policy, optimizer, batch, pack(group), SETTINGS)
            for _ in range(SETTINGS.epochs)
            for group in split_by_env(batch.sequences, SETTINGS.num_minibatches, generator)
        ]
        assert mean_rows(stats)[1].isfinite().all()
        successes.append(float(rewards.sum() / ended.sum()))
    return successes, policy


def test_learns_to_remember() -> None:
    """PPO teaches the recurrent policy a task that no policy without memory does better than by half."""
    successes, _ = train(num_rollouts=60, seed=0)
    assert np.mean(successes[:5]) < 0.65
    assert np.mean(successes[-5:]) > 0.95


def test_same_seed_same_weights() -> None:
    """Training twice with one seed gives the same weights to the bit; another seed gives others."""
    (_, first), (_, again), (_, other) = (train(num_rollouts=3, seed=seed) for seed in (4, 4, 5))
    for ours, same in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, same)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
