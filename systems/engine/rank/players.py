"""Those who play: one policy acts in environments, one agent or several in each; nothing is learned.

Letters: N rows of arrays, one for each environment, or for each agent of each; M of them that act.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlbench.harness.processes.raised import in_a_line
from rlbench.systems.policies.policy import Policy
from rlbench.systems.spaces.observations import leaves_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rlbench.harness.contract.device import Device
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.metering.batches.counted_agents import CountedAgents
    from rlbench.harness.metering.counted import CountedEnv

Episode = tuple[float, float, float, float]
"""The `EPISODE_METRICS` of an episode that has ended."""


class Acting:
    """What a policy acts on: N rows."""

    def __init__(
        self, scenario: Scenario, policy: Policy, num_rows: int, device: Device, generator: torch.Generator
    ) -> None:
        self._policy, self._device, self._generator = policy, device, generator
        self._observations = [
            (leaf, np.zeros((num_rows, *leaf.shape), leaf.dtype)) for leaf in leaves_of(scenario.observation_space)
        ]
        self._prev_actions = np.zeros((num_rows, policy.actions.size), policy.actions.dtype)
        self._starts = np.ones(num_rows, np.bool_)
        self._states = policy.initial_state(num_rows)  # [N, D]

    def _act(self, playing: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """Samples an action for each of the rows `playing`, [M], as rows [M, K]."""
        where = self._device.torch_name
        rows = torch.from_numpy(playing).to(where)
        with self._device.busy("infer", len(playing)):
            actions, _, _, self._states[rows] = self._policy.act(
                {leaf.key: torch.from_numpy(column[playing]).to(where) for leaf, column in self._observations},
                torch.from_numpy(self._prev_actions[playing]).to(where),
                torch.from_numpy(self._starts[playing]).to(where),
                self._states[rows],
                self._generator,
            )
            chosen: npt.NDArray[Any] = actions.cpu().numpy()
        return chosen


class Players(Acting):
    """Plays N environments with one policy; row n of its arrays belongs to environment n."""

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy,
        envs: Sequence[CountedEnv],
        device: Device,
        generator: torch.Generator,
    ) -> None:
        super().__init__(scenario, policy, len(envs), device, generator)
        self._envs = envs

    def play(self, num_each: int) -> list[Episode]:
        """Plays `num_each` episodes in each environment; returns them in the order in which they ended."""
        episodes: list[Episode] = []
        left = np.full(len(self._envs), num_each)
        for env in range(len(self._envs)):
            self._begin(env)
        while len(playing := np.flatnonzero(left)):
            for env, action in zip(playing.tolist(), self._act(playing), strict=True):
                episode = self._step(env, action)
                if episode is None:
                    continue
                episodes.append(episode)
                left[env] -= 1
                if left[env]:
                    self._begin(env)
        return episodes

    def _step(self, env: int, action: npt.NDArray[Any]) -> Episode | None:
        """Applies an action, a row [K]; returns the episode if it has ended."""
        observation, _, terminated, truncated, info = self._envs[env].step(self._policy.actions.to_env(action))
        if terminated or truncated:
            episode: Episode = info["episode"]
            return episode
        self._prev_actions[env] = action
        self._starts[env] = False
        self._show(env, observation)
        return None

    def _begin(self, env: int) -> None:
        """Begins an episode: the policy starts from a zero state."""
        self._starts[env] = True
        self._show(env, self._envs[env].reset())

    def _show(self, env: int, observation: Any) -> None:
        for leaf, column in self._observations:
            try:
                column[env] = leaf.read(observation)
            except Exception as error:
                what = f"environment {env} gave an observation whose {leaf.key!r} cannot be used"
                raise ValueError(f"{what}: {in_a_line(error)}") from error


class AgentPlayers(Acting):
    """Plays environments of A agents each with one policy; agent a of environment e has row e * A + a."""

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy,
        envs: Sequence[CountedAgents],
        agents: int,
        device: Device,
        generator: torch.Generator,
    ) -> None:
        super().__init__(scenario, policy, len(envs) * agents, device, generator)
        self._envs, self._agents = envs, agents

    def play(self, num_episodes: int) -> list[Episode]:
        """Plays until so many agents' episodes have ended, each environment equally often until all have left it.

        Returns them in the order in which they ended.
        """
        episodes: list[Episode] = []
        for env, agents in enumerate(self._envs):
            self._show(env, agents.reset(), np.ones(self._agents, np.bool_))
        while len(episodes) < num_episodes:
            played = np.array([agents.num_resets for agents in self._envs])
            while len(playing := np.flatnonzero([agents.num_resets for agents in self._envs] == played)):
                actions = self._act(np.concatenate([self._rows(env) for env in playing]))
                for env, rows in zip(playing.tolist(), np.split(actions, len(playing)), strict=True):
                    episodes += self._step(env, rows)
        return episodes

    def _rows(self, env: int) -> npt.NDArray[np.intp]:
        return np.arange(env * self._agents, (env + 1) * self._agents)

    def _step(self, env: int, actions: npt.NDArray[Any]) -> list[Episode]:
        """Applies actions, rows [A, K]; returns the episodes that have ended."""
        step = self._envs[env].step(self._policy.actions.to_env(actions))
        self._prev_actions[self._rows(env)] = actions
        self._show(env, step.observation, step.starts)
        return list(map(tuple, step.episodes[step.ended].tolist()))

    def _show(self, env: int, observation: Any, starts: npt.NDArray[np.bool_]) -> None:
        rows = self._rows(env)
        self._starts[rows] = starts
        for leaf, column in self._observations:
            column[rows] = leaf.read(observation)
