"""Rollouts for the tests of this folder: a policy that acts on random observations, with random ends of episodes."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.batch import Batch, make_batch
from rlbench.systems.learn.sequences import fixed_runs
from rlbench.systems.policies.policy import Policy
from rlbench.systems.spaces.actions import Categorical

GOAL = Box(-np.inf, np.inf, (3,), np.float32)


def space(*, goal: bool = True, pixels: tuple[int, int, int] | None = None, depth: int = 0) -> gymnasium.spaces.Dict:
    """An observation space with the named entries; `depth` is the height and width."""
    entries: dict[str, gymnasium.Space[object]] = {}
    if goal:
        entries["goal"] = GOAL
    if pixels:
        entries["pixels"] = Box(0, 255, pixels, np.uint8)
    if depth:
        entries["depth"] = Box(0, 10, (1, depth, depth), np.float32)
    return gymnasium.spaces.Dict(entries)


def random_obs(of: gymnasium.spaces.Dict, num: int, generator: torch.Generator) -> dict[str, Tensor]:
    """`num` observations: numbers of about 3, pixels over their whole range, depth to 12 m."""
    obs = {}
    for key, entry in of.spaces.items():
        shape = (num, *(entry.shape or ()))
        if key == "pixels":
            obs[key] = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        elif key == "depth":
            obs[key] = 12 * torch.rand(shape, generator=generator)
        else:
            obs[key] = 3 * torch.randn(shape, generator=generator)
    return obs


def sharpen(policy: Policy, factor: float = 100.0) -> Policy:
    """Makes the action probabilities differ: new policies are nearly uniform, which would hide errors."""
    with torch.no_grad():
        policy.policy_head.weight.mul_(factor)
    return policy


def play(
    policy: Policy,
    of: gymnasium.spaces.Dict,
    *,
    num_steps: int,
    num_envs: int,
    seed: int = 0,
    end_probability: float = 0.2,
    settings: LearnSettings | None = None,
) -> Batch:
    """A rollout [T, N] in row-major layout, that begins in the midst of episodes; rewards are random."""
    generator = torch.Generator().manual_seed(seed)
    dtype = policy.value_head.weight.dtype
    state = torch.randn(num_envs, policy.state_size, dtype=dtype, generator=generator).tanh()
    (part,) = policy.actions.parts
    assert isinstance(part, Categorical)
    prev_actions = torch.randint(-1, part.num, (num_envs, 1), generator=generator)
    starts = prev_actions[:, 0] < 0
    first_starts = starts
    rows: list[tuple[Tensor, ...]] = []
    seen: list[dict[str, Tensor]] = []
    for _ in range(num_steps):
        obs = random_obs(of, num_envs, generator)
        before = state
        actions, log_probs, values, state = policy.act(obs, prev_actions, starts, state, generator)
        terminated, truncated = torch.rand(2, num_envs, generator=generator) < end_probability / 2
        rows.append((before, actions, prev_actions, starts, log_probs, values, terminated, truncated))
        seen.append(obs)
        prev_actions, starts = actions, terminated | truncated
    states, actions, prev_actions, starts, log_probs, values, terminated, truncated = (
        torch.cat(column) for column in zip(*rows, strict=True)
    )
    assert torch.equal(starts[:num_envs], first_starts)
    return make_batch(
        runs=fixed_runs(num_steps, num_envs),
        envs=range(num_envs),
        states=states,
        obs={key: torch.cat([step[key] for step in seen]) for key in of.spaces},
        actions=actions,
        prev_actions=prev_actions,
        starts=starts,
        log_probs=log_probs,
        values=values,
        rewards=torch.randn(num_steps * num_envs, dtype=dtype, generator=generator),
        terminated=terminated,
        truncated=truncated,
        bootstrap=torch.randn(num_steps * num_envs, dtype=dtype, generator=generator),
        steps_per_env=num_steps,
        settings=settings or LearnSettings(),
    )
