"""Environments in which several agents act together, all by one policy: PettingZoo's parallel environments.

An env step is one step of a whole environment, an agent step one agent's action applied in it. Wherever a system has an
environment, a row of its arrays, a seat, a block of a meter, it has an agent here: environment e of a rank has the rows
e * A to e * A + A - 1, for its A `possible_agents` in their order, whether they are there or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import gymnasium

    from rlbench.harness.contract.device import Seat


class ParallelLike(Protocol):
    """One environment of several agents; PettingZoo's `ParallelEnv` is one."""

    @property
    def possible_agents(self) -> Sequence[str]:
        """All agents that may ever be in it, A of them; always the same."""

    @property
    def agents(self) -> Sequence[str]:
        """Those that are in it, and so act in the next step; known from the first reset on.

        Agents that were terminated or truncated are in it no more; they, and others, may come in any step. When nobody
        is left, it is reset.
        """

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """The scenario's, for every agent."""

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """The scenario's, for every agent."""

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Begins an episode; observations and infos of the agents that are in it. The first time with a seed."""

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
        """Applies the actions of all `agents`.

        Returns:
            Observations, rewards, terminations, truncations and infos. Each of those that acted has one of the first
            four; each that has come has an observation. The infos may hold what those of an environment with one
            agent may (`Scenario.make_env`); the frames are those of the environment, the most that an agent's say.
        """

    def close(self) -> None:
        """Ends it."""


class InAgents(Protocol):
    """What a scenario has whose environments have several agents: it is `InBatches` of one environment each.

    With A = 1 it is a scenario like any other: `make_env` makes each environment, for gymnasium.
    """

    @property
    def agents_per_env(self) -> int:
        """A, the number of `possible_agents` of each environment."""

    @property
    def envs_per_batch(self) -> int:
        """A too: the agents of an environment step together, in one process."""

    def make_envs(self, seats: Sequence[Seat]) -> ParallelLike:
        """Makes the environment of A neighbouring seats; its seed is the first seat's."""


class HasEnvs(Protocol):
    """As much of a scenario as counting its rows takes."""

    @property
    def num_envs(self) -> int:
        """Number of environments of one rank."""


def agents_per_env(scenario: object) -> int:
    """A, how many agents each environment of a scenario has; 1 where it does not say."""
    return max(1, getattr(scenario, "agents_per_env", 1))


def num_rows(scenario: HasEnvs) -> int:
    """How many agents the environments of one rank have in all: its seats, and the rows of a system's arrays."""
    return scenario.num_envs * agents_per_env(scenario)
