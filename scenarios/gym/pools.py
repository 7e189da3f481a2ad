"""Environments of EnvPool: many behind one object that steps them in threads, or one of them as Gymnasium's.

EnvPool has environments of its own, in C++, under ids of its own, many of which are Gymnasium's. Both `make_env` and
`make_envs` take them from there, so that a policy is trained and evaluated on the same.
"""

from __future__ import annotations

import difflib
import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rlbench.harness.contract.pools import PoolLike

MOST_SEED = 2**31 - 1
"""EnvPool's seeds have 31 bits."""
OURS = ("env_type", "num_envs", "batch_size", "seed")
"""Arguments of `envpool.make` for which there are settings, or no use."""


def make_pool(name: str, arguments: Mapping[str, Any], seeds: Sequence[int], of_recv: int) -> PoolLike:
    """Makes a pool of an environment for each seed, which answers for `of_recv` at a time. Raises ValueError.

    Args:
        name: EnvPool's id.
        arguments: of the environment; EnvPool chooses the number of its threads, unless `num_threads` says it: as many
            as answer at a time, or one for each core if that is less.
        seeds: one for each environment.
        of_recv: at most as many.
    """
    envpool = _package()
    _check(name, arguments, envpool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its spaces lose precision, as Gymnasium says each time
        try:
            pool: PoolLike = envpool.make(
                name,
                env_type="gymnasium",
                num_envs=len(seeds),
                batch_size=of_recv,
                seed=[seed & MOST_SEED for seed in seeds],
                **arguments,
            )
            _ = pool.single_observation_space, pool.single_action_space
        except (Exception, SystemExit) as error:
            text = " ".join(str(error).split())
            raise ValueError(f"vector=envpool: EnvPool refused it: {type(error).__name__}: {text:.200}") from error
    return pool


def _package() -> Any:
    try:
        return importlib.import_module("envpool")
    except Exception as error:  # without its assets it raises others than ImportError
        problem = f"vector=envpool: cannot import it ({type(error).__name__}: {error})"
        raise ValueError(f"{problem}; pip install envpool") from error


def _check(name: str, arguments: Mapping[str, Any], envpool: Any) -> None:
    """Raises ValueError for what EnvPool does not have."""
    for key in arguments:
        if key in OURS:
            raise ValueError(f"kwargs.{key}: with vector=envpool write num_envs, batch, recv or max_episode_steps")
    known = envpool.list_all_envs()
    if name not in known:
        near = difflib.get_close_matches(name.rpartition("/")[2], known, n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise ValueError(f"vector=envpool: EnvPool has no {name}{hint}")


class Unclipped:
    """A pool of Atari games with `reward_clip`, whose `raw_reward` is what EnvPool calls `info["reward"]`."""

    def __init__(self, pool: PoolLike) -> None:
        self._pool = pool
        self.num_envs, self.config = pool.num_envs, pool.config
        self.single_observation_space = pool.single_observation_space
        self.single_action_space = pool.single_action_space

    def async_reset(self) -> None:
        """Begins the first episodes."""
        self._pool.async_reset()

    def send(self, actions: Any, env_id: NDArray[np.int32], /) -> None:
        """Has environments apply actions."""
        self._pool.send(actions, env_id)

    def recv(self) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        """Waits for an answer."""
        *answer, info = self._pool.recv()
        return answer[0], answer[1], answer[2], answer[3], _with_raw(info)

    def close(self) -> None:
        """Closes it, if it can be."""
        _close(self._pool)


def clips(arguments: Mapping[str, Any]) -> bool:
    """Whether EnvPool gives signs of rewards, by the arguments of an environment."""
    return bool(arguments.get("reward_clip"))


def _with_raw(info: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**info, "raw_reward": info["reward"]} if "reward" in info else info


class OfPool(gymnasium.Env[Any, Any]):
    """One environment of EnvPool."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self._name, self._arguments = name, arguments
        self._pool: Any = make_pool(name, arguments, [0], 1)
        self.observation_space: Any = self._pool.single_observation_space
        self.action_space: Any = self._pool.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; another seed needs another environment."""
        del options
        if seed is not None:
            _close(self._pool)
            self._pool = make_pool(self._name, self._arguments, [seed], 1)
        observation, info = self._pool.reset()
        return _first(observation), _infos(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step."""
        batched = np.asarray(action, self.action_space.dtype)[None]
        observation, reward, terminated, truncated, info = self._pool.step(batched)
        infos = _infos(_with_raw(info) if clips(self._arguments) else info)
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), infos

    def close(self) -> None:
        """Closes it, if it can be."""
        _close(self._pool)


def _close(pool: Any) -> None:
    """Closes a pool, if it can be; EnvPool ends with its last reference."""
    if (close := getattr(pool, "close", None)) is not None:
        close()


def _first(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _first(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_first, observation))
    return observation[0]


def _infos(info: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value[0] for key, value in info.items() if isinstance(value, np.ndarray)}
