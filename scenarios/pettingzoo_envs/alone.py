"""A parallel environment of one agent as Gymnasium's: it is an environment like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from rlbench.harness.contract.agents import ParallelLike


class Alone(gymnasium.Env[Any, Any]):
    """The environment as its only agent has it."""

    def __init__(self, env: ParallelLike) -> None:
        (self._agent,) = env.possible_agents
        self._env = env
        self.observation_space = env.observation_space(self._agent)
        self.action_space = env.action_space(self._agent)
        self.metadata = getattr(env, "metadata", {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        observations, infos = self._env.reset(seed=seed, options=options)
        return observations[self._agent], dict(infos.get(self._agent, {}))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Applies the agent's action."""
        given = self._env.step({self._agent: action})
        own = self._agent
        try:
            observation, reward, terminated, truncated = (part[own] for part in given[:4])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"agent {own}: step gave it no observation, reward, termination or truncation") from None
        if own not in self._env.agents and not (terminated or truncated):
            rule = "its termination or truncation must be True then"
            raise ValueError(f"agent {own}: left agents and did not end: {rule}")
        return observation, float(reward), bool(terminated), bool(truncated), dict(given[4].get(own, {}))

    def render(self) -> Any:
        """What the environment draws. Raises NotImplementedError where it has no `render`."""
        if not hasattr(self._env, "render"):
            raise NotImplementedError
        return self._env.render()

    def close(self) -> None:
        """Ends it."""
        self._env.close()
