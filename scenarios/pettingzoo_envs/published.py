"""PPO's settings for one policy of several agents, as published, and where.

`PARTICLES`: vectors with discrete actions. Yu et al. 2022 (arXiv 2103.01955), who share one policy among agents, for
MPE's Spread: 128 environments, 25 steps, one batch, 10 epochs, learning rate 7e-4 (marlbenchmark/on-policy,
scripts/train_mpe_scripts/train_mpe_spread.sh); gradients clipped at 10. Here 16 environments have 200 steps each, the
same batch in total, since each environment has a process. Theirs have a network of each agent's own for values, which
sees all observations, and normalise values.

Other kinds of spaces have the settings of environments with one agent (`scenarios/gym/published.py`).
"""

from __future__ import annotations

from typing import Any

from gymnasium import Space

from rlbench.harness.contract.settings import LearnSettings
from rlbench.scenarios.gym.published import CLASSIC, Published
from rlbench.scenarios.gym.published import published as published_of_one

PARTICLES = Published(
    num_envs=16,
    rollout_steps=200,
    learn=LearnSettings(epochs=10, num_minibatches=1, learning_rate=7e-4, max_grad_norm=10.0),
)


def published(observation: Space[Any], action: Space[Any]) -> Published:
    """The settings for spaces of one kind, which all agents have."""
    own = published_of_one(observation, action)
    return PARTICLES if own is CLASSIC else own
