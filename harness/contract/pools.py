"""What a pool of environments is: one object that takes actions at any time, and answers for some environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import gymnasium
    import numpy as np
    from numpy.typing import NDArray


@runtime_checkable
class PoolLike(Protocol):
    """B environments that take actions at any time and answer for M of them at a time: EnvPool, or what is like it.

    It is EnvPool's interface of the kind `gymnasium` (Weng et al. 2022, "EnvPool"). M is `config["batch_size"]`. With
    M = B it is stepped as a whole batch, and must answer in the order of its environments; else in any order.

    An episode that has ended is followed by the next one in the next step (`AutoresetMode.NEXT_STEP`, the only one that
    `metadata["autoreset_mode"]` may name, if it is there): the action that is sent then is ignored, and the answer is
    the first observation, with reward 0 and no end. `send` and `recv` may be called at the same time, by a thread each.
    There may be a `close`.
    """

    @property
    def num_envs(self) -> int:
        """B."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Settings, of which only `batch_size` is read: M, or 0 for all."""

    @property
    def single_observation_space(self) -> gymnasium.Space[Any]:
        """That of one environment."""

    @property
    def single_action_space(self) -> gymnasium.Space[Any]:
        """That of one environment."""

    def async_reset(self) -> None:
        """Has every environment begin its first episode, for which `recv` answers; called once, before all else."""

    def send(self, actions: Any, env_id: NDArray[np.int32], /) -> None:
        """Has K environments, numbered from 0, apply the batched actions [K, ...]; none of them has one to apply."""

    def recv(self) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        """Blocks until M environments have answered.

        Returns:
            (observation [M, ...], rewards [M], terminated [M], truncated [M], info), where `info["env_id"]`, [M], says
            which they are; the rest of the info is as that of a vector environment (`InBatches.make_envs`).
        """
