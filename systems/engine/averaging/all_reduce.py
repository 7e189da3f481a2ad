"""Ranks in step: every update waits for all of them, or one learns for all.

With `OneLearner` rank 0 learns and infers. Its workers step the environments of all ranks of its machine, which render
on the devices that `placement` says. The other ranks own a device and wait for rank 0 at the end of every iteration;
rank 0 frees them, or its death. On every other machine the first rank serves the environments of all ranks there
(`workers/env_server.py`): the network then carries what shared memory carries on one machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from numpy.typing import NDArray

    from rlbench.harness.metering.meter import RankMeter
    from rlbench.systems.engine.wire.group import Group


class AllReducer:
    """`sum_moments`, `average_gradients`, `wait_for_ranks`, `agree` and `close` wait for all ranks."""

    is_synchronous = True

    def __init__(self, group: Group, meter: RankMeter) -> None:
        self._group, self._meter = group, meter

    def begin_update(self) -> None:
        """Nothing to do."""

    def sum_moments(self, moments: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks."""
        with self._meter.span("communicate"):
            return self._group.sum_moments(moments)

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replaces the gradients by their means over the ranks."""
        with self._meter.span("communicate"):
            self._group.average_gradients(parameters)

    def end_update(self) -> None:
        """Nothing to do."""

    def wait_for_ranks(self, *, broke_off: bool) -> bool:
        """Waits for the slowest rank; returns whether any rank broke its rollout off."""
        with self._meter.span("wait:straggler"):
            return bool(self._group.sum(np.array([float(broke_off)]))[0])

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:  # noqa: ARG002  none is gone
        """The sum, equal on all ranks."""
        with self._meter.span("communicate"):
            return self._group.sum(own)

    def is_over(self, own: bool) -> bool:
        """`own`, which is equal on all ranks."""
        return own

    def statistics(self) -> dict[str, float]:
        """There are none."""
        return {}

    def final_policy(self) -> bool:
        """True on rank 0; all ranks have the same weights."""
        return self._group.rank == 0

    def close(self) -> None:
        """Leaves the group, once all ranks have come as far."""
        self._group.close()


class OneLearner(AllReducer):
    """Ranks agree on progress alone; only rank 0 collects and has weights."""

    def sum_moments(self, moments: torch.Tensor) -> torch.Tensor:
        """Those of this rank: its mini-batches have the samples of all."""
        return moments

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Nothing to do: no other rank has gradients."""

    def wait_for_ranks(self, *, broke_off: bool) -> bool:
        """Waits for nobody: no other rank collects."""
        return broke_off

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:  # noqa: ARG002  none is gone
        """The sum, equal on all ranks; the others wait here for rank 0."""
        with self._meter.span("communicate" if self._group.rank == 0 else "wait:learner"):
            return self._group.sum(own)
