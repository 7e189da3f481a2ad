"""The wrapper in which the harness counts for the agents of one environment: `CountedBatch`, with a row for each agent.

    step --> the actions of those that are there --> counters, spans --> rewards, ends, observations checked
         --> episodes that ended: records --> nobody left? a reset

An agent's episode is its stay: from its first observation, when the environment is reset or the agent comes, to its
termination or truncation. Who leaves may come again, in any later step. Only who is there counts: a step is an agent
step of each of them, and one env step of the environment (`joint_steps`, and its `frames`), which is counted in the
first agent's block. Its span is theirs; of the counter `step_s` each agent gets an equal share, who is away too, so
that an environment's steps are as long for all of its agents. A reset, which is needed only when nobody is there, is a
span of all of them.

Letters: A possible agents, K that are there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector.utils import batch_space, iterate

from rlbench.harness.metering.batches.agent_rows import RESET_RULE, STEP_RULE, AgentRows
from rlbench.harness.metering.batches.steps import BatchEpisodes, BatchStep
from rlbench.harness.metering.blocks import Blocks, add
from rlbench.harness.metering.counted import RESET, SIMULATE, WAIT

if TYPE_CHECKING:
    import gymnasium
    import numpy.typing as npt

    from rlbench.harness.metering.batches.agent_rows import Parallel
    from rlbench.harness.metering.still import StillRows

    Mask = npt.NDArray[np.bool_]


class CountedAgents:
    """Steps one environment for its agents, and counts."""

    def __init__(
        self,
        env: Parallel,
        spaces: tuple[gymnasium.Space[Any], gymnasium.Space[Any]],
        blocks: Blocks,
        episodes_fd: int,
        first_agent: int,
        seed: int,
        still: StillRows | None = None,
    ) -> None:
        """Of an environment that `agent_rows.check_agents` has accepted.

        Args:
            env: the environment.
            spaces: of an agent's observations, and of its actions.
            blocks: of its agents.
            episodes_fd: the rank's episode file.
            first_agent: the number of its first agent among all of the run.
            seed: for the first reset.
            still: has the actions to apply instead of those that come.
        """
        num, (observation_space, action_space) = len(blocks), spaces
        self._env, self._blocks, self._num, self._still = env, blocks, num, still
        self._seed: int | None = seed
        self._rows = AgentRows(env, observation_space, first_agent // num)
        self._actions, self._are_choices = batch_space(action_space, num), isinstance(action_space, Discrete)
        self._episodes = BatchEpisodes(episodes_fd, first_agent, blocks.counter("episodes"))
        self._env_steps, self._joint_steps = blocks.counter("env_steps"), blocks.counter("joint_steps")
        self._frames = blocks.counter("frames")
        self._step_s, self._squared = blocks.seconds("step_s"), blocks.seconds("step_s_squared")
        self._reset_s, self._wait_s = blocks.seconds("reset_s"), blocks.span_seconds(WAIT)
        self._answered_at = 0.0  # set by the first reset, which comes before the first step
        self._there = np.zeros(num, np.bool_)
        self.num_resets = 0
        """How often it was reset: once before the first step, then whenever all agents had left."""

    def reset(self) -> Any:
        """Resets the environment and returns the observations of its agents, [A, ...]; zeros where one is away.

        The first reset has the first seat's seed. Raises ValueError if the answer breaks a rule.
        """
        seed, self._seed = self._seed, None
        begin = time.perf_counter()
        answer: Any = self._env.reset() if seed is None else self._env.reset(seed=seed)
        end = time.perf_counter()
        self.num_resets += 1
        self._blocks.put_spans(RESET, begin, end)
        add(self._reset_s, (end - begin) / self._num)
        self._answered_at = end
        self._episodes.restart()
        observations, _ = self._rows.parts(answer, 2, "reset gave", RESET_RULE)
        self._there = self._rows.there()
        if not self._there.any():
            raise self._rows.refused(None, "was reset and has agents", [], "some, who can act")
        return self._rows.observations(observations, np.flatnonzero(self._there))

    def step(self, actions: Any) -> BatchStep:
        """Applies the actions of those that are there, of batched ones, [A, ...].

        Raises ValueError if the answer breaks a rule; that step counts as well. The time since the previous step or
        reset counts as the wait of those that are there for these actions.
        """
        acted, rows = self._there, self._rows
        which = np.flatnonzero(acted)
        each = self._each(actions) if self._still is None else self._still.each(self._env_steps)
        chosen = {rows.names[row]: action for row, action in enumerate(each) if acted[row]}
        begin = time.perf_counter()
        answer: Any = self._env.step(chosen)
        end = time.perf_counter()
        self._count_step(begin, end, None if len(which) == self._num else acted)
        observations, given, terminations, truncations, all_infos = rows.parts(answer, 5, "step gave", STEP_RULE)
        rewards = rows.rewards(given, which)
        terminated = rows.flags(terminations, which, "termination")
        truncated = rows.flags(truncations, which, "truncation")
        if self._still is not None:
            ends = terminated[which], truncated[which]
            self._still.did(self._env_steps[which], which, rewards[which], *ends)
        infos = rows.infos(all_infos, which)
        frames = rows.frames(infos, which)
        self._frames[0] += frames
        self._episodes.add(which, rows.raw_rewards(infos, which, rewards)[which], 1, frames)
        ended = terminated | truncated
        there = rows.there()
        rows.check_who_left(acted, ended, there)
        episodes, final = np.zeros((self._num, 4)), None
        if ended.any():
            gone = np.flatnonzero(ended)
            final = rows.observations(observations, gone)
            of_gone = [info for row, info in zip(which, infos, strict=True) if ended[row]]
            said = (rows.fractions(of_gone, gone, name) for name in ("success", "spl"))
            episodes[gone] = self._episodes.end(gone, end, *said)
        if there.any():
            self._there = there
            observation = rows.observations(observations, np.flatnonzero(there))
        else:
            observation = self.reset()
        return BatchStep(
            observation=observation,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            counts=acted,
            ended=ended,
            starts=self._there & ~(acted & ~ended),
            final=final,
            episodes=episodes,
        )

    def _each(self, actions: Any) -> list[Any]:
        """The action of each agent, [A]; choices as ints."""
        return actions.tolist() if self._are_choices else list(iterate(self._actions, actions))

    def _count_step(self, begin: float, end: float, which: Mask | None) -> None:
        """Counts an agent step of the agents of the mask, [A]; None: all are there."""
        share = (end - begin) / self._num
        self._joint_steps[0] += 1
        add(self._env_steps, 1, which)
        add(self._step_s, share)
        add(self._squared, share * share)
        add(self._wait_s, begin - self._answered_at, which)
        self._answered_at = end
        self._blocks.put_spans(SIMULATE, begin, end, which)

    def used(self, waiting_s: float, stepping_s: float) -> None:
        """Counts CPU time, in seconds: of what its thread did for the environment before a step, and of the step."""
        self._blocks.add_cpu(WAIT, waiting_s / self._num, 0.0)
        self._blocks.add_cpu(SIMULATE, stepping_s / self._num, 0.0)

    def close(self) -> None:
        """Closes the environment and the episode file."""
        try:
            self._env.close()
        finally:
            self._episodes.close()
