"""Environments that count their env steps, frames, episodes and times, whatever library made them.

The process that steps an environment writes, to one file for that environment (`counters.py`), made at the first step
or reset; so a wrapper may be made in one process and stepped in another. gymnasium is not imported here: a caller with
an environment of gymnasium's has imported it, and gets a wrapper of gymnasium's own kind, which libraries accept.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
import weakref
from typing import Any

from rlbench_client.counters import AT, CounterFile, folder
from rlbench_client.rules import MOST_FRAMES, fraction_of, frames_of
from rlbench_client.vectorised import VectorCounting

ENV_STEPS, FRAMES, STEP_S, ANSWERED_AT = AT["env_steps"], AT["frames"], AT["step_s"], AT["answered_at"]


def count(env: Any, frames_per_step: int = 1) -> Any:
    """Wraps the environment in one that counts; returns it as it is outside rlbench, or where it is counted already.

    Args:
        env: one environment, or a vector of them, with gymnasium's `reset` and `step`.
        frames_per_step: simulator frames of an env step, where `info` has no `num_frames`.
    """
    if folder() is None or is_counted(env):
        return env
    return _counted_kind(_base_of(env), _is_vector(env))(env, frames_per_step)


def is_counted(env: Any) -> bool:
    """Whether an environment, or one that it wraps in this process, counts."""
    inside = [env]
    while inside:
        one = inside.pop()
        if isinstance(one, (Counting, VectorCounting)):
            return True
        held = vars(one) if hasattr(one, "__dict__") else {}
        inside += [held["env"]] if held.get("env") is not None else []
        inside += held["envs"] if isinstance(held.get("envs"), (list, tuple)) else []
    return False


class Counting:
    """What a wrapper of one environment does; `env` is that environment."""

    env: Any

    def __init__(self, env: Any, frames_per_step: int) -> None:
        super().__init__(env)  # type: ignore[call-arg]  # the base's, which `_counted_kind` chooses
        self._frames_per_step = frames_per_step
        _wrappers.add(self)

    def __reduce__(self) -> Any:
        """A copy, also one sent to another process, counts for itself."""
        return count, (self.env, self._frames_per_step)

    def reset(self, **options: Any) -> Any:
        """Begins an episode."""
        self._open()
        return self.reset(**options)

    def step(self, action: Any) -> Any:
        """Applies one action: one env step."""
        self._open()
        return self.step(action)

    def forget(self) -> None:
        """After a fork: the file is the parent's, so the next step or reset makes another one."""
        for name in ("reset", "step"):
            vars(self).pop(name, None)

    def _open(self) -> None:
        """Makes the file; from now on, `reset` and `step` of this object are functions that write to it.

        Their variables are local, because access to them adds to the time of every env step.
        """
        file, frames_per_step, now = CounterFile(num_envs=1), self._frames_per_step, time.perf_counter
        ints, floats = file.ints, file.floats
        num_steps = num_frames = length = frames = 0
        step_s = gain = 0.0
        floats[AT["began_at"]] = floats[ANSWERED_AT] = now()

        def reset(**options: Any) -> Any:
            nonlocal length, frames, gain
            begin = now()
            answer = self.env.reset(**options)
            end = now()
            floats[AT["reset_s"]] += end - begin
            floats[ANSWERED_AT] = end
            length, frames, gain = 0, num_frames, 0.0
            return answer

        def step(action: Any) -> Any:
            nonlocal num_steps, num_frames, length, frames, step_s, gain
            begin = now()
            answer = self.env.step(action)
            end = now()
            _, reward, terminated, truncated, info = answer
            num_steps += 1
            ints[ENV_STEPS] = num_steps
            stepped = info.get("num_frames", frames_per_step)
            if type(stepped) is not int or not 0 <= stepped <= MOST_FRAMES:
                stepped = frames_of(stepped)
            num_frames += stepped
            ints[FRAMES] = num_frames
            step_s += end - begin
            floats[STEP_S] = step_s
            floats[ANSWERED_AT] = end
            length += 1
            try:
                gain += info.get("raw_reward", reward)
            except TypeError:  # such as one reward for each agent, whose sum is not known here
                gain = math.nan
            if terminated or truncated:
                success, spl = (fraction_of(name, info.get(name, math.nan)) for name in ("success", "spl"))
                file.put_episode((end, _number(gain), length, num_frames - frames, success, spl))
                length, frames, gain = 0, num_frames, 0.0
            return answer

        vars(self).update(reset=reset, step=step)


def _number(gain: Any) -> float:
    """A return as a float, whatever kind of number rewards are; NaN where it is none."""
    try:
        return float(gain)
    except (TypeError, ValueError):
        return math.nan


def _forget() -> None:
    for wrapper in list(_wrappers):
        wrapper.forget()


_wrappers: weakref.WeakSet[Counting] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget)


class _Proxy:
    """The base for environments that are not gymnasium's: passes everything else on."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # before `__init__`
            raise AttributeError(name)
        return getattr(self.env, name)


class _CountingVector(VectorCounting):
    def __reduce__(self) -> Any:
        """A copy, also one sent to another process, counts for itself."""
        return count, (self.env, self._frames_per_step)


def _is_vector(env: Any) -> bool:
    return hasattr(env, "num_envs") and hasattr(env, "single_action_space")


def _base_of(env: Any) -> type:
    """The class that a wrapper must have for libraries to accept it in place of the environment."""
    gymnasium, vector = sys.modules.get("gymnasium"), sys.modules.get("gymnasium.vector")
    if vector is not None and isinstance(env, vector.VectorEnv):
        return _type(getattr(vector, "VectorWrapper", None) or vector.VectorEnvWrapper)  # the latter before 1.0
    if gymnasium is not None and isinstance(env, gymnasium.Env):
        return _type(gymnasium.Wrapper)
    return _Proxy


def _type(kind: Any) -> type:
    assert isinstance(kind, type)
    return kind


@functools.cache
def _counted_kind(base: type, is_vector: bool) -> type:
    return type(f"Counted{base.__name__}", (_CountingVector if is_vector else Counting, base), {})
