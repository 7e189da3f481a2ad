"""Layouts of actions, for tests."""

from __future__ import annotations

import gymnasium
import torch
from torch import Tensor

from rlbench.harness.contract.scenario import Scenario
from rlbench.systems.engine.workers.tables import SharedColumn, rollout_columns
from rlbench.systems.spaces.actions import ActionLayout, layout_of


def choices(num: int) -> ActionLayout:
    """One of `num` alternatives."""
    return ActionLayout.of(gymnasium.spaces.Discrete(num))


def no_action(num: int) -> tuple[Tensor, Tensor]:
    """Previous actions [num, 1] and starts [num] of environments that begin an episode."""
    return torch.zeros(num, 1, dtype=torch.int64), torch.ones(num, dtype=torch.bool)


def columns_of(scenario: Scenario, num_envs: int, num_slots: int, state_size: int) -> tuple[SharedColumn, ...]:
    """The columns of a rank's table."""
    space, actions = scenario.observation_space, layout_of(scenario)
    return rollout_columns(space, actions, num_envs, num_slots, state_size)
