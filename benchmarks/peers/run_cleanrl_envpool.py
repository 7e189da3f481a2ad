"""CleanRL's PPO for Atari on EnvPool: `python -m benchmarks.peers.run_cleanrl_envpool NUM_ENVS`.

CleanRL is no library but programs of one file each; this is `ppo_atari_envpool.py` (Huang et al. 2022, JMLR 23(274))
written again without its logging: the same network, settings and EnvPool arguments, on the CPU.
"""

from __future__ import annotations

import sys
from typing import Any

import envpool
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from benchmarks.peers.counter import StepCounter

NUM_STEPS, NUM_MINIBATCHES, EPOCHS = 128, 4, 4
LEARNING_RATE, DISCOUNT, GAE_LAMBDA, CLIP = 2.5e-4, 0.99, 0.95, 0.1
ENTROPY_COEF, VALUE_COEF, MAX_GRAD_NORM = 0.01, 0.5, 0.5
NUM_UPDATES = 10_000
"""Of its schedule: 10 million env steps with 8 environments."""
COUNTER = StepCounter()


def layer(module: Any, gain: float = 2**0.5) -> Any:
    """A layer with orthogonal weights."""
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


class Agent(nn.Module):
    """The network of Mnih et al. 2015 with two heads."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            *(layer(nn.Conv2d(4, 32, 8, stride=4)), nn.ReLU(), layer(nn.Conv2d(32, 64, 4, stride=2)), nn.ReLU()),
            *(
                layer(nn.Conv2d(64, 64, 3, stride=1)),
                nn.ReLU(),
                nn.Flatten(),
                layer(nn.Linear(64 * 7 * 7, 512)),
                nn.ReLU(),
            ),
        )
        self.actor, self.critic = layer(nn.Linear(512, num_actions), 0.01), layer(nn.Linear(512, 1), 1.0)

    def value(self, obs: Tensor) -> Tensor:
        """Values [M] of observations [M, 4, 84, 84]."""
        values: Tensor = self.critic(self.network(obs / 255.0)).flatten()
        return values

    def act(self, obs: Tensor, actions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(Actions, their log-probabilities, entropies, values), all [M]; draws actions if none are given."""
        hidden = self.network(obs / 255.0)
        chances: Any = Categorical(logits=self.actor(hidden))
        actions = chances.sample() if actions is None else actions
        return actions, chances.log_prob(actions), chances.entropy(), self.critic(hidden).flatten()


def main() -> None:
    """Trains until it is killed."""
    num_envs = int(sys.argv[1])
    envs = envpool.make("Breakout-v5", env_type="gym", num_envs=num_envs, episodic_life=True, reward_clip=True, seed=1)
    agent = Agent(envs.action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    shape = (NUM_STEPS, num_envs)
    obs, actions = torch.zeros(*shape, 4, 84, 84), torch.zeros(shape, dtype=torch.int64)
    log_probs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    next_obs, next_done = torch.tensor(envs.reset()[0], dtype=torch.float32), torch.zeros(num_envs)
    for update in range(NUM_UPDATES):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - update / NUM_UPDATES)
        for t in range(NUM_STEPS):
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                actions[t], log_probs[t], _, values[t] = agent.act(next_obs)
            told, reward, terminated, truncated, _ = envs.step(actions[t].numpy())
            COUNTER.add(num_envs)
            rewards[t] = torch.as_tensor(reward)
            next_obs = torch.tensor(told, dtype=torch.float32)
            next_done = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
        with torch.no_grad():
            advantages = estimate(rewards, values, dones, agent.value(next_obs), next_done)
        batch = (obs.flatten(0, 1), actions.flatten(), log_probs.flatten(), advantages.flatten(), values.flatten())
        for _ in range(EPOCHS):
            for rows in torch.randperm(NUM_STEPS * num_envs).chunk(NUM_MINIBATCHES):
                learn(agent, optimizer, *(column[rows] for column in batch))


def estimate(rewards: Tensor, values: Tensor, dones: Tensor, last_value: Tensor, last_done: Tensor) -> Tensor:
    """Advantages [T, N] by GAE."""
    advantages, following = torch.zeros_like(rewards), torch.zeros_like(last_value)
    next_values, goes_on = last_value, 1 - last_done
    for t in reversed(range(NUM_STEPS)):
        delta = rewards[t] + DISCOUNT * next_values * goes_on - values[t]
        advantages[t] = following = delta + DISCOUNT * GAE_LAMBDA * goes_on * following
        next_values, goes_on = values[t], 1 - dones[t]
    return advantages


def learn(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    obs: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    old_values: Tensor,
) -> None:
    """One step of the optimizer on a mini-batch, with the value loss clipped too."""
    _, log_probs, entropies, values = agent.act(obs, actions)
    returns = advantages + old_values
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratios = (log_probs - old_log_probs).exp()
    policy_loss = torch.max(-scaled * ratios, -scaled * ratios.clamp(1 - CLIP, 1 + CLIP)).mean()
    clipped = old_values + (values - old_values).clamp(-CLIP, CLIP)
    value_loss = 0.5 * torch.max((values - returns) ** 2, (clipped - returns) ** 2).mean()
    loss: Any = policy_loss - ENTROPY_COEF * entropies.mean() + VALUE_COEF * value_loss
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
    optimizer.step()


if __name__ == "__main__":
    main()
