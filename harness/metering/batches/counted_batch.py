"""The wrapper in which the harness counts for environments that one call steps together: `CountedEnv` for a batch.

    step --> is this an env step of it, or the reset that follows an end? --> counters, spans
         --> rewards, ends, observations checked --> episodes that ended: records
         --> where the environments leave resets to us: a reset of those that ended

It writes what B `CountedEnv` would write. Its times are those of the whole call: each environment simulated, reset or
waited for as long as the call did, as its spans say; of the counters `step_s` and `reset_s` each one gets an equal
share of it, so that they add up to the time that has passed. A reset inside of a step (`AutoresetMode.SAME_STEP`) takes
no time of its own.

Letters: B environments.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.metering.batches.infos import BatchInfos
from rlbench.harness.metering.batches.observations import BatchObservations
from rlbench.harness.metering.batches.steps import BatchChecks, BatchEpisodes, BatchStep
from rlbench.harness.metering.batches.vector_envs import DISABLED, NEXT_STEP, SAME_STEP, mode_of, seeded
from rlbench.harness.metering.blocks import Blocks, add
from rlbench.harness.metering.counted import RESET, SIMULATE, WAIT, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rlbench.harness.metering.batches.vector_envs import VectorEnv
    from rlbench.harness.metering.still import StillRows

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]

MOST_COMPARED = 16
"""Environments that are looked at whether a reset of others has changed them."""


class CountedBatch:
    """Steps B environments of neighbouring seats and counts, whichever way they are reset."""

    def __init__(
        self,
        env: VectorEnv,
        blocks: Blocks,
        episodes_fd: int,
        first_environment: int,
        seeds: Sequence[int],
        still: StillRows | None = None,
    ) -> None:
        """Of environments that `vector_envs.check_batch` has accepted; the first one has that number in the run.

        `still` has the actions to apply instead of those that come.
        """
        num = len(blocks)
        self._env, self._blocks, self._still = env, blocks, still
        self._first, self._num = first_environment, num
        self._seeds: list[int] | None = list(seeds)
        self._mode = mode_of(env)
        self._observations = BatchObservations(env.single_observation_space, num, self._refused)
        self._env_steps, self._frames = blocks.counter("env_steps"), blocks.counter("frames")
        self._episodes = BatchEpisodes(episodes_fd, first_environment, blocks.counter("episodes"))
        self._checks = BatchChecks(num, self._refused)
        self._step_s, self._squared = blocks.seconds("step_s"), blocks.seconds("step_s_squared")
        self._reset_s, self._wait_s = blocks.seconds("reset_s"), blocks.span_seconds(WAIT)
        self._answered_at = 0.0  # set by the first reset, which comes before the first step
        self._due = np.zeros(num, np.bool_)  # whose next step only resets it

    def reset(self) -> Any:
        """Begins an episode of each environment and returns the batched observation, [B, ...].

        The first reset has the seats' seeds. Raises ValueError if the answer breaks a rule.
        """
        seeds, self._seeds = self._seeds, None
        begin = time.perf_counter()
        answer: Any = self._env.reset() if seeds is None else seeded(self._env, seeds)
        self._count_reset(begin, time.perf_counter(), None)
        self._due = np.zeros(self._num, np.bool_)
        self._episodes.restart()
        return self._begun(answer)

    def _begun(self, answer: Any) -> Any:
        try:
            observation, _ = answer
        except (TypeError, ValueError):
            raise self._refused(None, "reset gave", answer, "(observation, info)") from None
        return self._observations.checked(observation)

    def step(self, actions: Any) -> BatchStep:
        """Applies an action to each environment, as `gymnasium.vector` takes them: one env step of those that count.

        Raises ValueError if the answer breaks a rule; that step counts as well. The time since the previous step or
        reset counts as the environments' wait for these actions.
        """
        counts, some_due = ~self._due, bool(self._due.any())
        if self._still is not None:
            actions = self._still.actions(self._env_steps)
        begin = time.perf_counter()
        answer: Any = self._env.step(actions)
        end = time.perf_counter()
        self._count_step(begin, end, counts if some_due else None)
        checks = self._checks
        observation, rewards, terminated, truncated, info = checks.parts(answer)
        has_final = info.get("final_obs") is not None
        terminated, truncated = checks.flags("terminated", terminated), checks.flags("truncated", truncated)
        ended = terminated | truncated
        any_ended = bool(ended.any())
        rewards = checks.rewards(rewards)
        if some_due:
            checks.resets(self._due, rewards, ended)
        if self._still is not None:
            of = np.flatnonzero(counts)
            self._still.did(self._env_steps[of], of, rewards[of], terminated[of], truncated[of])
        infos = BatchInfos(info, counts, ended if any_ended and self._mode == SAME_STEP else None, self._refused)
        if has_final or (any_ended and self._mode == SAME_STEP):
            self._check_final(infos, info, ended)
        frames = infos.frames()
        add(self._frames, frames)
        self._episodes.add(slice(None), infos.raw_rewards(rewards), counts, frames)
        episodes = np.zeros((self._num, 4))
        final = None
        observation = self._observations.checked(observation)
        self._due = ended if self._mode == NEXT_STEP else self._due
        if any_ended:
            self._record(end, infos, ended, episodes)
            final = self._final(observation, info, ended)
            if self._mode == DISABLED:
                observation = self._reset_ended(observation, ended)
        return BatchStep(
            observation=observation,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            counts=counts,
            ended=ended,
            starts=~counts if self._mode == NEXT_STEP else ended,
            final=final,
            episodes=episodes,
        )

    def _count_step(self, begin: float, end: float, which: Mask | None) -> None:
        """Counts an env step of the environments of the mask, [B], and a reset of the others; None: all are steps."""
        share = (end - begin) / self._num
        add(self._env_steps, 1, which)
        add(self._step_s, share, which)
        add(self._squared, share * share, which)
        add(self._wait_s, begin - self._answered_at)
        self._answered_at = end
        self._blocks.put_spans(SIMULATE, begin, end, which)
        if which is not None:
            self._blocks.put_spans(RESET, begin, end, ~which)
            add(self._reset_s, share, ~which)

    def _count_reset(self, begin: float, end: float, which: Mask | None) -> None:
        self._blocks.put_spans(RESET, begin, end, which)
        num = self._num if which is None else int(which.sum())
        add(self._reset_s, (end - begin) / num, which)
        if which is not None:
            add(self._wait_s, end - self._answered_at, ~which)
        self._answered_at = end

    def _check_final(self, infos: BatchInfos, info: Mapping[str, Any], ended: Mask) -> None:
        """Raises ValueError unless there are last observations where the environments reset themselves in the step."""
        given = info.get("final_obs")
        has = np.zeros(self._num, np.bool_) if given is None else infos.mask(info, "final_obs")
        if self._mode != SAME_STEP:
            if has.any():
                rule = f"left out, since autoreset_mode is {self._mode}"
                raise self._refused(int(has.argmax()), "gave final_obs", given, rule)
            return
        lacks = ended & ~has
        if lacks.any():
            rule = f"the last observation of the episode that ended, since autoreset_mode is {self._mode}"
            raise self._refused(int(lacks.argmax()), "gave final_obs", None, rule)
        if "_final_obs" in info and (extra := has & ~ended).any():
            rule = "left out where no episode ended"
            raise self._refused(int(extra.argmax()), "gave final_obs", given, rule)

    def _final(self, observation: Any, info: Mapping[str, Any], ended: Mask) -> Any:
        if self._mode == NEXT_STEP:
            return observation
        if self._mode == DISABLED:
            return self._observations.keep(observation, ended)
        final = info["final_obs"]
        if isinstance(final, np.ndarray) and final.dtype == np.object_:
            if final.shape != ended.shape:
                raise self._refused(None, "gave final_obs of shape", final.shape, f"{ended.shape}")
            return self._observations.keep_each(final, ended)
        return self._observations.keep(self._observations.checked(final, ended), ended)

    def _reset_ended(self, observation: Any, ended: Mask) -> Any:
        """Resets the environments whose episodes have ended, and returns what to act on next.

        Raises ValueError if that changes the observation of one of the others that are looked at.
        """
        others = np.flatnonzero(~ended)
        others = others[:: max(1, -(-len(others) // MOST_COMPARED))]
        before = self._observations.sample(observation, others)
        begin = time.perf_counter()
        answer: Any = self._env.reset(options={"reset_mask": ended.copy()})
        self._count_reset(begin, time.perf_counter(), ended)
        observation = self._begun(answer)
        after = self._observations.sample(observation, others)
        for old, new in zip(before, after, strict=True) if len(others) else ():
            changed = (old != new).reshape(len(others), -1).any(1)
            if changed.any():
                rule = "what it was, since it was not in the reset_mask"
                at = int(changed.argmax())
                raise self._refused(int(others[at]), "gave an observation after a reset of others", new[at], rule)
        return observation

    def _record(self, end: float, infos: BatchInfos, ended: Mask, episodes: Floats) -> None:
        """Writes the records of the episodes that ended, and what they say into the rows of these."""
        success, spl = infos.fractions("success", ended), infos.fractions("spl", ended)
        which = np.flatnonzero(ended)
        episodes[which] = self._episodes.end(which, end, success[which], spl[which])

    def _refused(self, index: int | None, what: str, value: object, rule: str) -> ValueError:
        last = self._first + self._num - 1
        who = f"environments {self._first} to {last}" if index is None else f"environment {self._first + index}"
        return refused(who, what, value, rule)

    def used(self, waiting_s: float, stepping_s: float) -> None:
        """Counts CPU time, in seconds: of what its thread did for the batch before a step, and of the step."""
        self._blocks.add_cpu(WAIT, waiting_s / self._num, 0.0)
        self._blocks.add_cpu(SIMULATE, stepping_s / self._num, 0.0)

    def close(self) -> None:
        """Closes the environments and the episode file."""
        try:
            self._env.close()
        finally:
            self._episodes.close()
