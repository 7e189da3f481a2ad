"""Environments that count their env steps, frames, episodes and times, whatever library made them.

Who writes: the process that steps the environment, to a file of its own for it (`counters.py`), made with its first
step or reset; so a wrapper may be made in one process and stepped in another. gymnasium is not imported here: an
environment of it comes with it, and gets a wrapper of its own kind, which libraries accept.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from os import getpid
from typing import Any

from rlbench_client.counters import AT, CounterFile, folder
from rlbench_client.vectorised import VectorCounting

ENV_STEPS, FRAMES = AT["env_steps"], AT["frames"]
STEP_S, STEP_S_SQUARED, RESET_S, WAIT_S = AT["step_s"], AT["step_s_squared"], AT["reset_s"], AT["wait_s"]


def count(env: Any, frames_per_step: int = 1) -> Any:
    """The environment, counted; itself, where this process is under no rlbench or it is counted already.

    Args:
        env: one environment, or a vector of them, with gymnasium's `reset` and `step`.
        frames_per_step: simulator frames of an env step, where `info` has no `num_frames`.
    """
    if folder() is None or is_counted(env):
        return env
    return _counted_kind(_base_of(env), _is_vector(env))(env, frames_per_step)


def is_counted(env: Any) -> bool:
    """Whether it, or one inside it in this process, counts."""
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
    """What a wrapper of one environment does; `env` is the environment."""

    env: Any

    def __init__(self, env: Any, frames_per_step: int) -> None:
        super().__init__(env)  # type: ignore[call-arg]  # the base's, which `_counted_kind` chooses
        self._frames_per_step = frames_per_step
        self._pid: int | None = None

    def __reduce__(self) -> Any:
        """A copy, or what is sent to another process, counts for itself."""
        return count, (self.env, self._frames_per_step)

    def _open(self) -> None:
        file = CounterFile(num_envs=1)
        self._ints, self._floats, self._put_episode = file.ints, file.floats, file.put_episode
        self._pid = getpid()
        self._answered_at = time.perf_counter()
        self._return, self._length, self._frames = 0.0, 0, 0

    def reset(self, **options: Any) -> Any:
        """Begins an episode."""
        if self._pid != getpid():
            self._open()
        begin = time.perf_counter()
        answer = self.env.reset(**options)
        self._answered_at = time.perf_counter()
        self._floats[RESET_S] += self._answered_at - begin
        self._return, self._length, self._frames = 0.0, 0, 0
        return answer

    def step(self, action: Any) -> Any:
        """Applies one action: one env step."""
        if self._pid != getpid():
            self._open()
        begin = time.perf_counter()
        answer = self.env.step(action)
        end = time.perf_counter()
        ints, floats, took, info = self._ints, self._floats, end - begin, answer[-1]
        frames = info.get("num_frames", self._frames_per_step)
        ints[ENV_STEPS] += 1
        ints[FRAMES] += frames
        floats[STEP_S] += took
        floats[STEP_S_SQUARED] += took * took
        floats[WAIT_S] += begin - self._answered_at
        self._answered_at = end
        try:
            self._return += float(info.get("raw_reward", answer[1]))
        except (TypeError, ValueError):  # a reward for each agent, say: its sum is not known here
            self._return = math.nan
        self._length += 1
        self._frames += frames
        if any(answer[2:-1]):  # terminated or truncated
            success, spl = (float(info.get(name, math.nan)) for name in ("success", "spl"))
            self._put_episode((end, self._return, self._length, self._frames, success, spl))
            self._return, self._length, self._frames = 0.0, 0, 0
        return answer


class _Proxy:
    """The base for what is no environment of gymnasium's: passes all else on."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # before `__init__`
            raise AttributeError(name)
        return getattr(self.env, name)


def _is_vector(env: Any) -> bool:
    return hasattr(env, "num_envs") and hasattr(env, "single_action_space")


def _base_of(env: Any) -> type:
    """What a wrapper must be for libraries to accept it in the environment's place."""
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
    return type(f"Counted{base.__name__}", (VectorCounting if is_vector else Counting, base), {})
