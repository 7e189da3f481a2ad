"""What a pool of environments says of itself, and one that answers for all of them, stepped as a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium
import numpy as np

from rlbench.harness.metering.batches.vector_envs import NEXT_STEP, check_spaces, mode_of
from rlbench.harness.metering.counted import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


class Pool(Protocol):
    """As much of a `harness.contract.pools.PoolLike` as counting takes."""

    @property
    def num_envs(self) -> int:
        """B."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Its settings."""

    @property
    def single_observation_space(self) -> gymnasium.Space[Any]:
        """That of one environment."""

    @property
    def single_action_space(self) -> gymnasium.Space[Any]:
        """That of one environment."""

    def async_reset(self) -> None:
        """Begins the first episodes."""

    def send(self, actions: Any, env_id: npt.NDArray[np.int32], /) -> None:
        """Has environments apply actions."""

    def recv(self) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        """Blocks until M environments have answered."""


def size_of(env: Pool) -> int:
    """M, environments of an answer: `config["batch_size"]`; 0 stands for all. Raises ValueError if it does not say."""
    try:
        size: Any = env.config["batch_size"]
    except (LookupError, TypeError):
        size = None
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or not 0 <= size <= env.num_envs:
        rule = f"a whole number up to its {env.num_envs} environments"
        raise ValueError(f'make_envs gave a pool with config["batch_size"] = {shown(size)}: it must be {rule}')
    return int(size) or int(env.num_envs)


def check_pool(
    env: Pool,
    num_envs: int,
    of_recv: int,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
) -> None:
    """Raises ValueError unless a pool has so many environments, these spaces of one, and answers for M at a time."""
    if env.num_envs != num_envs:
        raise ValueError(f"make_envs gave {env.num_envs} environments: it must give {num_envs}, one for each seat")
    if (size := size_of(env)) != of_recv:
        raise ValueError(f"make_envs gave a pool that answers for {size} environments: the scenario states {of_recv}")
    check_spaces(env, observation_space, action_space)
    is_said = "autoreset_mode" in (getattr(env, "metadata", None) or {})
    if is_said and (mode := mode_of(env)) != NEXT_STEP:
        raise ValueError(f"make_envs gave a pool whose autoreset_mode is {mode}: it must be {NEXT_STEP}")


def ids_of(info: Any, of_recv: int, waiting: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """The environments that an answer is for, [M], as the pool numbers them from 0.

    Raises ValueError unless they are M different ones of those that wait for an answer, which `waiting`, [B], says.
    """
    try:
        given = info["env_id"]
        ids = np.asarray(given)
    except (LookupError, TypeError, ValueError):
        raise ValueError(f'the pool gave the info {shown(info)}: it must have "env_id"') from None
    if ids.shape != (of_recv,) or ids.dtype.kind not in "iu":
        raise ValueError(f"the pool gave env_id {shown(given)}: it must be an array of {of_recv} whole numbers")
    outside = ids[(ids < 0) | (ids >= len(waiting))]
    if len(outside):
        raise ValueError(f"the pool gave env_id {int(outside[0])}: it must be from 0 to {len(waiting) - 1}")
    found: npt.NDArray[np.intp] = ids.astype(np.intp)
    wrong = found[~waiting[found] | (np.bincount(found)[found] > 1)]
    if len(wrong):
        rule = "of an environment that has an action to apply, once"
        raise ValueError(f"the pool gave env_id {int(wrong[0])}: it must be {rule}")
    return found


class WholePool(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A pool that answers for all of its environments at a time, in their order, as a vector environment."""

    def __init__(self, pool: Pool) -> None:
        """Of a pool whose M is its number of environments."""
        self._pool, self.num_envs = pool, pool.num_envs
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self.single_observation_space = pool.single_observation_space
        self.single_action_space = pool.single_action_space
        self._all = np.arange(pool.num_envs, dtype=np.int32)
        self._waiting = np.ones(pool.num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins the first episodes; their seeds are those that the pool was made with."""
        del seed, options
        self._pool.async_reset()
        observation, _, _, _, info = self._received()
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all."""
        self._pool.send(actions, self._all)
        return self._received()

    def _received(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, rewards, terminated, truncated, info = self._pool.recv()
        ids = ids_of(info, self.num_envs, self._waiting)
        if (ids != self._all).any():
            raise ValueError(f"the pool gave env_id {shown(ids)}: they must be in order, since it answers for all")
        return observation, rewards, terminated, truncated, dict(info)

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the pool, if it can be."""
        del kwargs
        close_pool(self._pool)


def close_pool(pool: Pool) -> None:
    """Closes a pool, if it can be; EnvPool ends with its last reference."""
    close = getattr(pool, "close", None)
    if close is not None:
        close()
