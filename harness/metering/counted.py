"""The environment wrapper in which the harness counts env steps, frames, episodes and the time of steps and resets.

It runs in the process that steps the environment. It writes that environment's block of the meter, and one record for
each episode to the rank's episode file. All workers of the rank open that file for appending; a record is one small
write, which Linux appends whole. No system can count differently, since systems do not see these counters.
"""

from __future__ import annotations

import math
import operator
import os
import struct
import time
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.metering.meter_file import KIND_OF, TOTALS_AT, Block

if TYPE_CHECKING:
    import gymnasium

EPISODE = struct.Struct("<qddqqdd")
"""A record; `EPISODE_DTYPE` of `harness/metering/batches/steps.py` is the same."""
EPISODE_FIELDS = ("environment", "end_s", "return", "length", "frames", "success", "spl")
SIMULATE, RESET, WAIT = KIND_OF["simulate"], KIND_OF["reset"], KIND_OF["wait:inference"]
MOST_REWARD = (2 - 2**-23) * 2.0**127
"""The largest float32, since rewards are learned from as float32."""
MOST_FRAMES = 2**31
"""Most frames of one env step; the counter, an int64, then overflows only after 2^32 steps."""
STEP_RULE = "(observation, reward, terminated, truncated, info), info a dict"
FRAMES_RULE = f"a whole number from 0 to {MOST_FRAMES:,}"
FRACTION_RULE = "a number from 0 to 1, NaN, or left out"
MOST_SHOWN = 60
"""Characters that an error shows of a refused value."""


def episodes_path(folder: Path, rank: int) -> Path:
    """The episode file of a rank: records of `EPISODE`."""
    return folder / f"episodes-rank{rank}.bin"


class CountedEnv:
    """Steps one environment and counts. `reset` and `step` are gymnasium's, without automatic reset."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], block: Block, episodes_fd: int, environment: int, seed: int
    ) -> None:
        self._env = env
        self._block = block
        self._episodes_fd = episodes_fd
        self._environment = environment
        self._seed: int | None = seed
        self._step_s, self._squared = block.word("step_s"), block.word("step_s_squared")
        self._env_steps, self._frames = block.word("env_steps"), block.word("frames")
        self._wait_s = block.word("pid") + TOTALS_AT + WAIT
        self._answered_at = 0.0  # set by the first reset, which comes before the first step
        self._return, self._length, self._episode_frames = 0.0, 0, 0

    def reset(self, seed: int | None = None) -> Any:
        """Begins an episode; its time is a `reset` span. Without `seed`, the first reset has the seat's seed.

        Raises ValueError if the environment's answer does not have two parts.
        """
        seed, self._seed = self._seed if seed is None else seed, None
        begin = time.perf_counter()
        answer: Any = self._env.reset(seed=seed)
        end = time.perf_counter()
        observation: Any
        try:
            observation, _ = answer
        except (TypeError, ValueError):
            raise self._refused("reset gave", answer, "(observation, info)") from None
        self._block.put_span(RESET, begin, end)
        self._block.floats[self._block.word("reset_s")] += end - begin
        self._answered_at = end
        self._return, self._length, self._episode_frames = 0.0, 0, 0
        return observation

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Applies one action: one env step. Raises ValueError if the answer breaks a rule; that step counts as well.

        The time since the previous step or reset counts as the environment's wait for this action.
        """
        block = self._block
        ints, floats = block.ints, block.floats
        begin = time.perf_counter()
        answer: Any = self._env.step(action)
        end = time.perf_counter()
        took = end - begin
        ints[self._env_steps] += 1
        floats[self._step_s] += took
        floats[self._squared] += took * took
        floats[self._wait_s] += begin - self._answered_at
        self._answered_at = end
        block.put_span(SIMULATE, begin, end)
        try:
            observation, reward, terminated, truncated, info = answer
            frames, raw = info.get("num_frames", 1), info.get("raw_reward", reward)
        except (TypeError, ValueError, AttributeError):
            raise self._refused("step gave", answer, STEP_RULE) from None
        if type(frames) is not int or not 0 <= frames <= MOST_FRAMES:
            frames = self._frames_of(frames)
        ints[self._frames] += frames
        is_raw = raw is reward
        if type(reward) is not float:
            try:
                reward = float(reward) if type(reward) in scalars else self._reward_of("the reward", reward)
            except OverflowError:
                raise self._refused_reward("the reward", reward) from None
        if not -MOST_REWARD <= reward <= MOST_REWARD:  # NaN neither
            raise self._refused_reward("the reward", reward)
        if is_raw:
            raw = reward
        elif type(raw) is not float or not -MOST_REWARD <= raw <= MOST_REWARD:
            raw = self._reward_of("the raw_reward", raw)
        self._return += raw
        self._length += 1
        self._episode_frames += frames
        if terminated is not False or truncated is not False:
            terminated, truncated = self._flags_of(terminated, truncated)
            if terminated or truncated:
                self._record(end, info)
        return observation, reward, terminated, truncated, info

    def _record(self, end: float, info: dict[str, Any]) -> None:
        success, spl = (self._fraction_of(name, info.get(name, math.nan)) for name in ("success", "spl"))
        info["episode"] = (self._return, float(self._length), success, spl)
        record = EPISODE.pack(self._environment, end, self._return, self._length, self._episode_frames, success, spl)
        os.write(self._episodes_fd, record)
        self._block.add("episodes", 1)

    def _frames_of(self, frames: Any) -> int:
        """Converts a `num_frames` that is no int within the limits from another kind of whole number, or refuses it."""
        number = num_frames(frames)
        if number is None:
            raise self._refused("gave num_frames =", frames, FRAMES_RULE)
        return number

    def _reward_of(self, what: str, reward: Any) -> float:
        number = real_number(reward)
        if number is None:
            raise self._refused(f"gave {what}", reward, "a real number")
        if not -MOST_REWARD <= number <= MOST_REWARD:
            raise self._refused_reward(what, number)
        return number

    def _flags_of(self, terminated: Any, truncated: Any) -> tuple[bool, bool]:
        if type(terminated) in flags and type(truncated) in flags:
            return bool(terminated), bool(truncated)
        return self._flag_of("terminated", terminated), self._flag_of("truncated", truncated)

    def _flag_of(self, name: str, value: Any) -> bool:
        """What says whether an episode has ended: a bool, also of NumPy, or 0 or 1."""
        if value is not True and value is not False:
            number = real_number(value)
            if number not in {0.0, 1.0}:
                raise self._refused(f"gave {name} =", value, "a bool")
            if type(value).__name__ in {"bool", "bool_"}:  # NumPy's, whose array of one is another class
                flags.add(type(value))
        return bool(value)

    def _refused_reward(self, what: str, number: float) -> ValueError:
        return self._refused(f"gave {what}", number, reward_rule(number))

    def _fraction_of(self, name: str, value: Any) -> float:
        number = fraction(value)
        if number is None:
            raise self._refused(f"gave {name} =", value, FRACTION_RULE)
        return number

    def _refused(self, what: str, value: Any, rule: str) -> ValueError:
        return refused(f"environment {self._environment}", what, value, rule)

    def used(self, waiting_s: float, stepping_s: float) -> None:
        """Counts CPU time, in seconds: of what its thread did for this environment before a step, and of the step."""
        self._block.add_cpu(WAIT, waiting_s, 0.0)
        self._block.add_cpu(SIMULATE, stepping_s, 0.0)

    def close(self) -> None:
        """Closes the environment and the episode file."""
        try:
            self._env.close()
        finally:
            os.close(self._episodes_fd)


def refused(who: str, what: str, value: Any, rule: str) -> ValueError:
    """The error for what an environment, or several, gave."""
    return ValueError(f"{who} {what} {shown(value)}: it must be {rule}")


def reward_rule(number: float) -> str:
    """The rule that a reward breaks, which is a number."""
    is_finite = isinstance(number, int) or math.isfinite(number)
    return f"a number that float32 can hold, up to {MOST_REWARD:.4g}" if is_finite else "finite"


def num_frames(value: Any) -> int | None:
    """A number of frames of any whole type. None for anything else, and beyond the limits."""
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if 0 <= number <= MOST_FRAMES and not isinstance(value, bool) else None


def fraction(value: Any) -> float | None:
    """A real number from 0 to 1, or NaN, as a float. None for anything else."""
    number = real_number(value)
    return number if number is not None and (0 <= number <= 1 or math.isnan(number)) else None


def real_number(value: Any) -> float | None:
    """A real number of Python or NumPy, or an array that holds just one, as a float. None for anything else.

    Text and complex numbers give None. A Python int beyond float32 becomes infinite.
    """
    if isinstance(value, int):
        return float(value) if -MOST_REWARD <= value <= MOST_REWARD else math.copysign(math.inf, value > 0 or -1)
    if isinstance(value, float):
        scalars.add(type(value))
        return float(value)
    if not hasattr(value, "__array__"):
        return float(value) if isinstance(value, Real) else None
    import numpy as np

    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        return None
    if isinstance(value, np.generic):
        scalars.add(type(value))
    return float(array.item())


flags: set[type] = {bool}
"""Classes whose values say whether an episode has ended; NumPy's is added when its first value comes."""
scalars: set[type] = {float, int, bool}
"""Classes of real numbers that `float` converts directly; NumPy's are added when their first value comes."""


def shown(value: Any) -> str:
    """A refused value as text: its `repr`, cut, with its type unless it is a plain number."""
    kind = type(value).__name__
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001  whatever somebody else's `__repr__` does
        return f"something of class {kind} whose repr raises {type(error).__name__}"
    text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return text if type(value) in {int, float, bool} else f"{text} ({kind})"
