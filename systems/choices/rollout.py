"""What fills a batch: T steps of each environment, the first T x N steps of any, or a stream of trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Split = Literal["envs", "steps"]
"""How mini-batches are made: whole environments, or sequences laid end to end and cut (VER section 2.2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsPerEnv:
    """Rollouts of T * N steps."""

    num_steps: int = 0
    """T; 0 takes the scenario's."""

    def __post_init__(self) -> None:
        """Checks the field."""
        if self.num_steps < 0:
            raise ValueError(f"rollout.num_steps={self.num_steps}: must be at least 1, or 0 for the scenario's")

    def steps(self, scenario_steps: int) -> int:
        """T for a scenario."""
        return self.num_steps or scenario_steps

    def target(self, num_envs: int, num_steps: int) -> int:
        """T * N."""
        return num_envs * num_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed(StepsPerEnv):
    """T steps of each environment (SyncOnRL, DD-PPO section 3)."""

    split: ClassVar[Split] = "envs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable(StepsPerEnv):
    """T x N steps in total; actions in flight at the end belong to the next rollout (VER section 2.2)."""

    split: ClassVar[Split] = "steps"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectories(StepsPerEnv):
    """A stream of trajectories of T steps, learned `batch` env steps at a time (Sample Factory table A.5)."""

    batch: int = 0
    """Env steps of one learning phase; 0 takes T times the environments that the learner learns from."""

    split: ClassVar[Split] = "steps"

    def __post_init__(self) -> None:
        """Checks the fields."""
        StepsPerEnv.__post_init__(self)
        if self.batch < 0:
            raise ValueError(f"rollout.batch={self.batch}: must be at least 1, or 0 for T times the environments")

    def target(self, num_envs: int, num_steps: int) -> int:
        """Env steps of a batch."""
        return self.batch or num_envs * num_steps


MOST_BATCHES_WAITING = 2
"""Most batches that wait for the learner: more would not keep it busier, only make samples older. One trajectory of
each environment may wait where that is more: environments in step end theirs all at once, and would stand still."""


def stream_limit(batch: int, num_envs: int, num_steps: int, max_lag: int, updates_per_batch: int) -> int:
    """Env steps that may wait for the learner before environments are held back.

    A sample waits for what is queued before it and for the N * T steps that may be under way (Sample Factory section
    3.4), so its lag stays within `max_lag` optimiser steps as long as environments are about equally fast.
    """
    within_lag = max_lag // updates_per_batch * batch - num_envs * num_steps
    most = max(MOST_BATCHES_WAITING * batch, num_envs * num_steps)
    return min(most, max(batch, within_lag))


RolloutChoice = Fixed | Variable | Trajectories
