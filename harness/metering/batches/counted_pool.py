"""The wrapper in which the harness counts for a pool: environments that are sent actions, some of which then answer.

    send --> environments that have an action to apply; when
    recv --> who answers, and was it asked? --> is this an env step of it, or a reset? --> counters, spans
         --> rewards, ends, observations checked --> episodes that ended: records

An env step counts when it is received, never when its action is sent: what is never received is never counted. Each
environment simulates, or is reset, from its `send` to the `recv` that answers for it, which is all that a pool knows:
the time includes its wait for a thread of the pool, and for the others of its answer. From then to its next `send` it
waits for an action. So the spans of one environment add up to the time that has passed, and those of several overlap,
as do those of environments that have a process each.

One thread may send while another receives. An environment's time of sending is written before the pool gets the action,
and read after the pool has answered; the receiving thread alone writes counters. Letters: B environments, M of an
answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.metering.batches.infos import BatchInfos
from rlbench.harness.metering.batches.observations import BatchObservations
from rlbench.harness.metering.batches.pool_envs import close_pool, ids_of
from rlbench.harness.metering.batches.steps import BatchChecks, BatchEpisodes, BatchStep
from rlbench.harness.metering.blocks import Blocks
from rlbench.harness.metering.counted import RESET, SIMULATE, WAIT, refused

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.harness.metering.batches.pool_envs import Pool
    from rlbench.harness.metering.still import StillRows

    Ids = npt.NDArray[np.intp]
    Mask = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]


class CountedPool:
    """Sends actions to B environments of neighbouring seats, receives what they answer, and counts."""

    def __init__(
        self,
        env: Pool,
        of_recv: int,
        blocks: Blocks,
        episodes_fd: int,
        first_environment: int,
        still: StillRows | None = None,
    ) -> None:
        """Of a pool that `pool_envs.check_pool` has accepted; its environment 0 has that number in the run.

        `still` has the actions to apply instead of those that come.
        """
        num = len(blocks)
        self._env, self._blocks, self._of_recv, self._still = env, blocks, of_recv, still
        self._first, self._num = first_environment, num
        self._answered: Ids = np.zeros(0, np.intp)
        self._observations = BatchObservations(env.single_observation_space, of_recv, self._refused)
        self._checks = BatchChecks(of_recv, self._refused)
        self._episodes = BatchEpisodes(episodes_fd, first_environment, blocks.counter("episodes"))
        self._env_steps, self._frames = blocks.counter("env_steps"), blocks.counter("frames")
        self._step_s, self._squared = blocks.seconds("step_s"), blocks.seconds("step_s_squared")
        self._reset_s, self._wait_s = blocks.seconds("reset_s"), blocks.span_seconds(WAIT)
        self._sent_at, self._answered_at = np.zeros(num), np.zeros(num)
        self._waiting = np.zeros(num, np.bool_)  # who has an action to apply
        self._due = np.ones(num, np.bool_)  # whose next step only resets it

    def reset(self) -> None:
        """Has every environment begin its first episode; `recv` answers for each of them, with `counts` False."""
        self._answered_at[:] = self._sent_at[:] = time.perf_counter()
        self._waiting[:] = True
        self._env.async_reset()

    def send(self, actions: Any, ids: Ids) -> None:
        """Has environments [K] apply an action each, [K, ...]; none of them has one that was not answered."""
        assert not self._waiting[ids].any(), "an environment has one action to apply at a time"
        self._sent_at[ids] = time.perf_counter()
        self._waiting[ids] = True
        if self._still is not None:
            actions = self._still.actions(self._env_steps[ids], ids)
        self._env.send(actions, ids.astype(np.int32))

    def recv(self) -> tuple[Ids, BatchStep]:
        """Blocks until M environments have answered; returns which, [M], and what, in the same order.

        Raises ValueError if the answer breaks a rule.
        """
        checks = self._checks
        self._answered = np.zeros(0, np.intp)
        answer: Any = self._env.recv()
        end = time.perf_counter()
        observation, rewards, terminated, truncated, info = checks.parts(answer)
        try:
            ids = ids_of(info, self._of_recv, self._waiting)
        except ValueError as error:
            raise ValueError(f"{self._who}: {error}") from None
        self._answered = ids
        counts = ~self._due[ids]
        self._count(ids, counts, end)
        terminated, truncated = checks.flags("terminated", terminated), checks.flags("truncated", truncated)
        rewards, ended = checks.rewards(rewards), terminated | truncated
        checks.resets(~counts, rewards, ended)
        if self._still is not None:
            of = ids[counts]
            self._still.did(self._env_steps[of], of, rewards[counts], terminated[counts], truncated[counts])
        infos = BatchInfos(info, counts, None, self._refused)
        frames = infos.frames()
        self._frames[ids] += frames
        self._episodes.add(ids, infos.raw_rewards(rewards), counts, frames)
        observation = self._observations.checked(observation)
        self._due[ids] = ended
        episodes = np.zeros((self._of_recv, 4))
        if ended.any():
            rows = np.flatnonzero(ended)
            success, spl = infos.fractions("success", ended)[rows], infos.fractions("spl", ended)[rows]
            episodes[rows] = self._episodes.end(ids[rows], end, success, spl)
        return ids, BatchStep(
            observation=observation,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            counts=counts,
            ended=ended,
            starts=~counts,
            final=observation if ended.any() else None,
            episodes=episodes,
        )

    def _count(self, ids: Ids, counts: Mask, end: float) -> None:
        """Counts an env step of the environments in the rows `counts`, [M], and a reset of the others."""
        begins = self._sent_at[ids]
        self._wait_s[ids] += begins - self._answered_at[ids]
        self._answered_at[ids] = end
        self._waiting[ids] = False
        stepped, reset = ids[counts], ids[~counts]
        took = end - begins[counts]
        self._env_steps[stepped] += 1
        self._step_s[stepped] += took
        self._squared[stepped] += took * took
        self._reset_s[reset] += end - begins[~counts]
        self._blocks.put_spans_of(SIMULATE, begins[counts], end, stepped)
        self._blocks.put_spans_of(RESET, begins[~counts], end, reset)

    @property
    def _who(self) -> str:
        return f"environments {self._first} to {self._first + self._num - 1}"

    def _refused(self, index: int | None, what: str, value: object, rule: str) -> ValueError:
        """The error for row `index` of the latest answer, or for all of it."""
        who = self._who if index is None else f"environment {self._first + int(self._answered[index])}"
        return refused(who, what, value, rule)

    def used(self, waiting_s: float, stepping_s: float) -> None:
        """Counts CPU time, in seconds: of the threads that send and receive, and of all others of the process."""
        self._blocks.add_cpu(WAIT, waiting_s / self._num, 0.0)
        self._blocks.add_cpu(SIMULATE, stepping_s / self._num, 0.0)

    def close(self) -> None:
        """Closes the pool and the episode file."""
        try:
            close_pool(self._env)
        finally:
            self._episodes.close()
