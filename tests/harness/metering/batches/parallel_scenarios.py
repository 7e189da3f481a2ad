"""Parallel environments as PettingZoo has them, whose agents leave, come again, and all leave, for tests of agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.harness.metering.batches.vector_scenarios import ACTIONS, SPACE

if TYPE_CHECKING:
    import gymnasium

    from rlbench.harness.contract.device import Seat

ENDS = ((True, False), (False, True), (True, True))


class Crowd:
    """A parallel environment but for what is observed and rewarded: who is in it, and for how long.

    Agents stay for a random number of steps, at the end of which they are terminated, truncated, or both. Those that
    are away come with the probability `comes`; whoever has left only after a step at least.
    """

    def __init__(self, names: Sequence[str], most_steps: int, comes: float) -> None:
        self.possible_agents = list(names)
        self._most_steps, self._comes = most_steps, comes
        self._rng = np.random.default_rng(0)
        self._left: dict[str, int] = {}

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """That of all."""
        assert agent in self.possible_agents
        return SPACE

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """That of all."""
        assert agent in self.possible_agents
        return ACTIONS

    @property
    def agents(self) -> list[str]:
        """Those that are in it, in any order."""
        return list(self._left)

    def begin(self, seed: int | None) -> None:
        """Some agents come, at least one."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._left = {}
        num = int(self._rng.integers(1, len(self.possible_agents) + 1))
        self._come(self._rng.permutation(self.possible_agents)[:num].tolist())

    def _come(self, agents: Sequence[str]) -> None:
        self._left |= {agent: int(self._rng.integers(1, self._most_steps + 1)) for agent in agents}

    def pass_on(self, actions: Mapping[str, Any]) -> dict[str, tuple[bool, bool]]:
        """A step of those that act, which must be those that are in it; how it ended for each."""
        assert actions.keys() == self._left.keys()
        ends = {}
        for agent in sorted(actions):
            self._left[agent] -= 1
            ends[agent] = ENDS[self._rng.integers(3)] if not self._left[agent] else (False, False)
        self._left = {agent: left for agent, left in self._left.items() if left}
        self._come([agent for agent in self.possible_agents if agent not in actions and self._comes_now()])
        return ends

    def _comes_now(self) -> bool:
        return bool(self._rng.random() < self._comes)

    def close(self) -> None:
        """Nothing to do."""


class RandomParallel(Crowd):
    """Random observations of nested spaces, rewards and infos."""

    def _observe(self, agents: Iterable[str], actions: Mapping[str, Any]) -> dict[str, Any]:
        return {
            agent: {
                "x": self._rng.uniform(-9, 9, 2).astype(np.float32),
                "b": (np.int64(1 + actions.get(agent, 0)), self._rng.integers(0, 2, 3, dtype=np.int8)),
            }
            for agent in sorted(agents)
        }

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """The infos of a reset are not those of a step."""
        assert options is None
        self.begin(seed)
        return self._observe(self.agents, {}), {agent: {"num_frames": 1000} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Some agents give infos."""
        ends = self.pass_on(actions)
        infos: dict[str, Any] = {}
        for agent in sorted(actions):
            if self._rng.random() < 0.5:
                infos[agent] = {"num_frames": int(self._rng.integers(0, 5)), "raw_reward": self._rng.normal()}
            if any(ends[agent]) and self._rng.random() < 0.5:
                infos[agent] = infos.get(agent, {}) | {"success": float(self._rng.integers(2))}
        seen = self._observe({*actions, *self.agents}, actions)
        rewards = {agent: self._rng.normal() for agent in sorted(actions)}
        terminations, truncations = ({agent: end[i] for agent, end in ends.items()} for i in range(2))
        return seen, rewards, terminations, truncations, infos


@dataclass(frozen=True)
class ParallelScenario:
    """As much of a scenario as the agents of one environment need."""

    num_agents: int
    most_steps: int = 4
    comes: float = 0.3

    observation_space = SPACE
    action_space = ACTIONS

    def make_envs(self, seats: Sequence[Seat]) -> Any:
        """The environment of the agents that have these seats."""
        assert len(seats) == self.num_agents
        return RandomParallel(names(self.num_agents), self.most_steps, self.comes)


def names(num: int) -> list[str]:
    """What agents are called."""
    return [f"player_{number}" for number in range(num)]
