"""PPO's settings by the kind of an environment's spaces, as published, and where.

`CONTROL`: continuous actions. Schulman et al. 2017 (arXiv 1707.06347), table 3, for MuJoCo, which has the defaults of
Stable-Baselines3 and so of rl-baselines3-zoo's `mujoco-defaults` (hyperparams/ppo.yml, 22e3ff2); the zoo adds
`normalize: true`, of observations and rewards. Its own settings for HalfCheetah and Hopper are tuned for each.
Published: 1 environment, 2,048 steps, mini-batches of 64. Here 16 environments have 128 steps each, the same batch in
total, in 16 mini-batches of 128, since some systems split a rollout by environments.

`CLASSIC`: vectors with discrete actions. CartPole-v1 of the zoo (same file): 8 environments, 32 steps, one batch of
256, 20 epochs, discount 0.98, lambda 0.8; without its linear schedules, which need a budget.

`GRID`: small images of symbols, as Minigrid's 7x7x3. lcswillems/rl-starter-files, scripts/train.py, `--algo ppo`: 16
environments, 128 frames each, mini-batches of 256, 4 epochs, Adam's epsilon 1e-8. Learning rate and normalised
advantages are those of rl-baselines3-zoo's MiniGrid-DoorKey-5x5-v0: rewards of DoorKey-8x8 are so rare that without
them, and with the starter files' 1e-3, the entropy bonus kept `sync` from learning in 740,000 env steps.

`IMAGE`: images. Schulman et al. 2017, table 5, as in `scenarios/atari.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rlbench.harness.contract.settings import LearnSettings
from rlbench.scenarios.gym.spaces import leaves

LEAST_PICTURE = 28
"""Pixels; smaller arrays of bytes hold symbols, as in `systems/spaces/images.py`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What a paper or a collection of settings says of one kind."""

    num_envs: int
    rollout_steps: int
    learn: LearnSettings
    normalize_observations: bool = False


CONTROL = Published(
    num_envs=16,
    rollout_steps=128,
    learn=LearnSettings(
        epochs=10,
        num_minibatches=16,
        learning_rate=3e-4,
        entropy_coef=0.0,
        normalize_advantages="all",
        normalize_rewards=True,
    ),
    normalize_observations=True,
)
CLASSIC = Published(
    num_envs=8,
    rollout_steps=32,
    learn=LearnSettings(
        epochs=20,
        num_minibatches=1,
        learning_rate=1e-3,
        discount=0.98,
        gae_lambda=0.8,
        entropy_coef=0.0,
        normalize_advantages="all",
    ),
)
GRID = Published(
    num_envs=16,
    rollout_steps=128,
    learn=LearnSettings(epochs=4, num_minibatches=8, adam_eps=1e-8, normalize_advantages="all"),
)
IMAGE = Published(
    num_envs=8, rollout_steps=128, learn=LearnSettings(epochs=3, num_minibatches=4, clip=0.1, value_coef=1.0)
)


def published(observation: Space[Any], action: Space[Any]) -> Published:
    """The settings for spaces of one kind; an image, or a grid, decides it before the actions do."""
    arrays = [leaf for _, leaf in leaves(observation) if isinstance(leaf, spaces.Box) and len(leaf.shape) == 3]
    if any(sorted(leaf.shape)[1] >= LEAST_PICTURE for leaf in arrays):
        return IMAGE
    if any(leaf.dtype == np.uint8 for leaf in arrays):
        return GRID
    return CONTROL if any(isinstance(leaf, spaces.Box) for _, leaf in leaves(action)) else CLASSIC
