"""PPO in one file, for `rlbench run --systems ppo=examples/ppo.toml`: the lines marked `rlbench` are all it takes.

Proximal Policy Optimization (Schulman et al., 2017) with a clipped loss and generalised advantage estimation, on any
environment with a vector of numbers as its observation and a number as its action. T: steps of a rollout, N:
environments, K: numbers of an observation.
"""

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import rlbench_client  # rlbench, line 1

parser = argparse.ArgumentParser()
parser.add_argument("--env-id", default="CartPole-v1")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--env-steps", type=float, default=100_000)
parser.add_argument("--num-envs", type=int, default=8)
parser.add_argument("--rollout-steps", type=int, default=64)
parser.add_argument("--device", default="cpu")
args = parser.parse_args()

EPOCHS, MINIBATCHES, LEARNING_RATE = 4, 4, 2.5e-4
DISCOUNT, LAMBDA, CLIP, ENTROPY, VALUE, MAX_GRAD_NORM = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
T, N = args.rollout_steps, args.num_envs


class Policy(nn.Module):
    """Two layers for the action, two for the value."""

    def __init__(self, num_inputs: int, num_actions: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(num_inputs, 64), nn.Tanh(), nn.Linear(64, num_actions))
        self.critic = nn.Sequential(nn.Linear(num_inputs, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, observations: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """The distribution of actions and the values, of observations [..., K]."""
        return Categorical(logits=self.actor(observations)), self.critic(observations).squeeze(-1)


torch.manual_seed(args.seed)
envs = [rlbench_client.count(gymnasium.make(args.env_id)) for _ in range(N)]  # rlbench, line 2
policy = Policy(envs[0].observation_space.shape[0], envs[0].action_space.n).to(args.device)
optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE, eps=1e-5)
latest = np.stack([env.reset(seed=args.seed * N + number)[0] for number, env in enumerate(envs)])  # [N, K]
num_steps = 0

while num_steps < args.env_steps:
    observations = torch.zeros(T, N, latest.shape[1])
    actions = torch.zeros(T, N, dtype=torch.int64)
    log_probs, rewards, ends, values = (torch.zeros(T, N) for _ in range(4))
    for t in range(T):
        observations[t] = torch.as_tensor(latest)
        with torch.no_grad():
            choices, value = policy(observations[t].to(args.device))
            action = choices.sample()
        actions[t], log_probs[t], values[t] = action.cpu(), choices.log_prob(action).cpu(), value.cpu()
        for number, env in enumerate(envs):
            latest[number], reward, terminated, truncated, _ = env.step(actions[t, number].item())
            rewards[t, number] = float(reward)
            if truncated and not terminated:  # the episode would have gone on
                with torch.no_grad():
                    rewards[t, number] += DISCOUNT * policy(torch.as_tensor(latest[number]).to(args.device))[1].cpu()
            if terminated or truncated:
                ends[t, number] = 1
                latest[number], _ = env.reset()
    num_steps += T * N

    with torch.no_grad():
        following = policy(torch.as_tensor(latest).to(args.device))[1].cpu()
    advantages, advantage = torch.zeros(T, N), torch.zeros(N)
    for t in reversed(range(T)):
        goes_on = 1 - ends[t]
        delta = rewards[t] + DISCOUNT * following * goes_on - values[t]
        advantage = delta + DISCOUNT * LAMBDA * goes_on * advantage
        advantages[t], following = advantage, values[t]

    batch = [each.flatten(0, 1).to(args.device) for each in (observations, actions, log_probs, advantages, values)]
    for _ in range(EPOCHS):
        for rows in torch.randperm(T * N, device=args.device).chunk(MINIBATCHES):
            seen, taken, old_log_probs, gains, old_values = (each[rows] for each in batch)
            choices, value = policy(seen)
            ratio = torch.exp(choices.log_prob(taken) - old_log_probs)
            normal = (gains - gains.mean()) / (gains.std() + 1e-8)
            actor_loss = -torch.min(ratio * normal, ratio.clamp(1 - CLIP, 1 + CLIP) * normal).mean()
            critic_loss = 0.5 * (value - gains - old_values).pow(2).mean()
            loss = actor_loss + VALUE * critic_loss - ENTROPY * choices.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRAD_NORM)
            optimizer.step()
    rlbench_client.learned(T * N, lag=0)  # rlbench, line 3
