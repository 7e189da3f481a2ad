"""A scenario whose environments have three agents each, and log what each agent does; imports no torch.

Agents leave, come again, and all leave (`Crowd`); with `comes` near 0 most are away most of the time, some for whole
rollouts. Each log is that of a seat, and is written in the process that steps the environment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.contract.settings import GpuCosts, LearnSettings
from tests.harness.metering.batches.parallel_scenarios import Crowd, names
from tests.systems.engine import doubles
from tests.systems.engine.batched import ACTIONS, LOG, SLOW_MS, SPACE
from tests.systems.engine.cells import make_cell
from tests.systems.engine.doubles import Family, log_path
from tests.systems.engine.recorded import record

if TYPE_CHECKING:
    import gymnasium

    from rlbench.harness.contract.device import Seat
    from rlbench.harness.plan.cells import Cell

NUM_ENVS, NUM_AGENTS, NUM_STEPS = 4, 3, 8
MOST_STEPS = 6
COMES = (0.05, 0.6)
Way = tuple[str, float, int]
"""System, how likely agents come that are away, ranks."""
NUM_ITERATIONS = 6


class LoggedCrowd(Crowd):
    """Shows an agent its number, its stay, the step, and something random; the reward is the action and a bit."""

    def __init__(self, logs: Path, first: int, comes: float, step_s: float) -> None:
        super().__init__(names(NUM_AGENTS), MOST_STEPS, comes)
        self._numbers = {agent: first + row for row, agent in enumerate(self.possible_agents)}
        self._step_s = step_s
        self._logs = {
            agent: os.open(log_path(logs, number), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for agent, number in self._numbers.items()
        }
        self._joint = os.open(joint_path(logs, first), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        log_path(logs, first).with_suffix(".pid").write_text(str(os.getpid()))
        self._stays = dict.fromkeys(self.possible_agents, 0)
        self._steps = dict.fromkeys(self.possible_agents, 0)

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """That of all."""
        assert agent in self._numbers
        return SPACE

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """That of all."""
        assert agent in self._numbers
        return ACTIONS

    def _observe(self, agent: str, *said: float) -> dict[str, Any]:
        noise = self._rng.integers(8) / 8
        obs = np.array([self._numbers[agent], self._stays[agent], self._steps[agent], noise], np.float32)
        entry = np.zeros((), LOG)
        for name, value in zip(LOG.names or (), (*said, obs), strict=True):
            entry[name] = value
        os.write(self._logs[agent], entry.tobytes())
        return {"where": obs}

    def _greet(self, agents: Sequence[str]) -> dict[str, Any]:
        for agent in agents:
            self._stays[agent], self._steps[agent] = self._stays[agent] + 1, 0
        return {agent: self._observe(agent, 0, 0, 0, 0, 0) for agent in agents}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Some come."""
        assert options is None
        self.begin(seed)
        return self._greet(self.agents), {}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """What those that act get of it, and what those see that come."""
        time.sleep(self._step_s)
        os.write(self._joint, b".")
        ends = self.pass_on(actions)
        seen, rewards = {}, {}
        for agent, action in actions.items():
            self._steps[agent] += 1
            rewards[agent] = action + self._rng.integers(8) / 8
            seen[agent] = self._observe(agent, 1, action, rewards[agent], *ends[agent])
        seen |= self._greet([agent for agent in self.agents if agent not in actions])
        terminations, truncations = ({agent: end[i] for agent, end in ends.items()} for i in range(2))
        return seen, rewards, terminations, truncations, {}


@dataclass(frozen=True, kw_only=True, slots=True)
class CrowdScenario:
    """Makes such environments."""

    name: str = "crowd"
    workload: str = "homogeneous"
    logs: str = ""
    """A folder."""
    comes: float = COMES[0]
    slow_ms: float = 0.0
    """How long each step of environment 0 of rank 0 sleeps."""
    num_envs: int = NUM_ENVS
    rollout_steps: int = NUM_STEPS
    policy: str = "small"
    learn: LearnSettings = field(default_factory=lambda: LearnSettings(num_minibatches=2))
    gpu_costs: GpuCosts = field(default_factory=GpuCosts)
    preload: tuple[str, ...] = ("tests.systems.engine.agents.crowds",)

    observation_space = SPACE
    action_space = ACTIONS
    agents_per_env = NUM_AGENTS
    envs_per_batch = NUM_AGENTS

    def make_env(self, seat: Seat) -> gymnasium.Env[Any, Any]:
        """There are none."""
        raise NotImplementedError

    def make_envs(self, seats: Sequence[Seat]) -> LoggedCrowd:
        """One of them."""
        first = seats[0].global_index
        return LoggedCrowd(Path(self.logs), first, self.comes, (first == 0) * self.slow_ms / 1e3)


FAMILY = Family("environments with several agents", CrowdScenario)
registered = partial(doubles.registered, "crowd", __name__)


def cell_of(
    way: Way,
    logs: Path,
    iterations: int = NUM_ITERATIONS,
    settings: Mapping[str, Any] = {},
    slow_ms: float = SLOW_MS,
) -> Cell:
    """A cell, to be loaded where the family is registered; `settings` are the scenario's; on one rank none is slow."""
    system, comes, num_ranks = way
    slow_ms = slow_ms if num_ranks > 1 else 0.0
    more = "".join(f":{name}={value}" for name, value in settings.items())
    scenario = f"crowd:comes={comes}:logs={logs}:slow_ms={slow_ms}{more}"
    return make_cell(system, scenario, gpus=num_ranks, iterations=iterations)


def record_crowd(folder: Path) -> None:
    """Runs this rank of the cell in `folder`, whose learner writes down what it learns from."""
    with registered():
        record(folder)


def joint_path(logs: Path, first: int) -> Path:
    """A file with a byte for each step of the environment whose first agent has that number."""
    return logs / f"{first}.joint"
