"""A parallel environment of one agent as Gymnasium's: it is an environment like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from harness.contract.agents import ParallelLike


class Alone(gymnasium.Env[Any, Any]):
    """The environment as its only agent has it."""

    def __init__(self, env: ParallelLike) -> None:
        (self._agent,) = env.possible_agents
        self._env = env
        self.observation_space = env.observation_space(self._agent)
        self.action_space = env.action_space(self._agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        observations, infos = self._env.reset(seed=seed, options=options)
        return observations[self._agent], dict(infos.get(self._agent, {}))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Applies the agent's action."""
        observations, rewards, terminations, truncations, infos = self._env.step({self._agent: action})
        own = self._agent
        ended = bool(terminations[own]), bool(truncations[own])
        return observations[own], float(rewards[own]), *ended, dict(infos.get(own, {}))

    def close(self) -> None:
        """Ends it."""
        self._env.close()
