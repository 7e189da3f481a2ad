"""Steps of environments that one call steps, or answers for: what they must hold, and the episodes they add up to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.metering.batches.vector_envs import NEXT_STEP
from rlbench.harness.metering.counted import EPISODE, EPISODE_FIELDS, MOST_REWARD, STEP_RULE, reward_rule

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.harness.metering.batches.observations import Refuse

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]

EPISODE_DTYPE = np.dtype([(name, f"<{code}8") for name, code in zip(EPISODE_FIELDS, "iffiiff", strict=True)])
assert EPISODE_DTYPE.itemsize == EPISODE.size


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchStep:
    """What follows a step of B environments, or of B agents of one; its arrays hold until the next step."""

    observation: Any
    """To act on next: arrays [B, ...] in the structure of the observation space.

    Where an environment's next step will only reset it, it is the ended episode's last, and the action does not matter.
    Where an agent is away it is zeros, and its action is not used.
    """
    rewards: Floats
    """[B]."""
    terminated: Mask
    """[B]."""
    truncated: Mask
    """[B]; may hold with `terminated`."""
    counts: Mask
    """[B]; False where it took no step: it was only reset, or its agent is away."""
    ended: Mask
    """[B]; where an episode ended."""
    starts: Mask
    """[B]; whether `observation` is an episode's first, or an agent's since it came."""
    final: Any
    """The last observation of each episode that ended, in the rows of `ended`; None if none did. As `observation`."""
    episodes: Floats
    """Return, length, success and SPL of each episode that ended, [B, 4], in the rows of `ended`; 0 elsewhere."""


class BatchChecks:
    """Checks the parts of answers for K environments; what breaks a rule is a ValueError that names it."""

    def __init__(self, num: int, refuse: Refuse) -> None:
        """K, and what makes the error for environment k of an answer, or for all of it."""
        self._num, self._refuse = num, refuse

    def parts(self, answer: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        """Observation, rewards, terminated, truncated, info."""
        try:
            observation, rewards, terminated, truncated, info = answer
            info.get("final_obs")
        except (TypeError, ValueError, AttributeError):
            raise self._refuse(None, "step gave", answer, STEP_RULE) from None
        return observation, rewards, terminated, truncated, info

    def flags(self, name: str, flags: Any) -> Mask:
        """Flags, [K]."""
        array: Mask = np.array(flags)  # a copy: a reset may clear what the environments gave
        if array.shape != (self._num,) or array.dtype != np.bool_:
            raise self._refuse(None, f"gave {name}", flags, f"an array of {self._num} bool")
        return array

    def rewards(self, rewards: Any) -> Floats:
        """Rewards that float32 can hold, [K]."""
        try:
            array = np.asarray(rewards)
        except ValueError:
            array = np.zeros(())
        if array.shape != (self._num,) or array.dtype.kind not in "biuf":
            raise self._refuse(None, "gave the rewards", rewards, f"an array of {self._num} real numbers")
        numbers: Floats = array.astype(np.float64)
        if not np.abs(numbers).max() <= MOST_REWARD:  # NaN neither
            i = int(np.flatnonzero(~(np.abs(numbers) <= MOST_REWARD))[0])
            raise self._refuse(i, "gave the reward", float(numbers[i]), reward_rule(float(numbers[i])))
        return numbers

    def resets(self, due: Mask, rewards: Floats, ended: Mask) -> None:
        """A step that only resets an environment, in the rows `due`, must not look like one that does more."""
        wrong = np.flatnonzero(due & (ended | (rewards != 0)))
        if len(wrong):
            i = int(wrong[0])
            what = "an end" if ended[i] else "a reward of"
            rule = f"0 and no end in the step that resets it, since autoreset_mode is {NEXT_STEP}"
            raise self._refuse(i, f"gave {what}", True if ended[i] else float(rewards[i]), rule)


class BatchEpisodes:
    """Adds up what each of B episodes gave, and writes it down when it ends."""

    def __init__(self, episodes_fd: int, first_environment: int, num_ended: Ints) -> None:
        """The first environment has that number in the run; `num_ended` counts the episodes of each, [B]."""
        self._fd, self._first, self._num_ended = episodes_fd, first_environment, num_ended
        num = len(num_ended)
        self._returns, self._lengths, self._frames = np.zeros(num), np.zeros(num, int), np.zeros(num, int)

    def restart(self) -> None:
        """All environments begin an episode; those that had not ended leave no record."""
        for of_episode in (self._returns, self._lengths, self._frames):
            of_episode[:] = 0

    def add(self, of: Any, rewards: Floats, counts: Any, frames: Any) -> None:
        """Adds a step of environments `of`, an index of K: rewards, whether it counts, frames; [K] or one for all."""
        self._returns[of] += rewards
        self._lengths[of] += counts
        self._frames[of] += frames

    def end(self, of: npt.NDArray[np.intp], end_s: float, success: Floats, spl: Floats) -> Floats:
        """Writes the records of the episodes of the environments `of` [K] by one write, and begins their next ones.

        Returns:
            The return, length, success and SPL of each, [K, 4].
        """
        columns = (self._returns[of], self._lengths[of], self._frames[of], success, spl)
        records = np.empty(len(of), EPISODE_DTYPE)
        for name, column in zip(EPISODE_FIELDS[2:], columns, strict=True):
            records[name] = column
        records["environment"], records["end_s"] = self._first + of, end_s
        text = records.tobytes()
        while text:
            text = text[os.write(self._fd, text) :]
        self._num_ended[of] += 1
        for of_episode in (self._returns, self._lengths, self._frames):
            of_episode[of] = 0
        returns, lengths, *_ = columns
        return np.stack((returns, lengths, success, spl), 1)

    def close(self) -> None:
        """Closes the episode file."""
        os.close(self._fd)
