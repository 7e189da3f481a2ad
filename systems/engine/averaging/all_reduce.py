"""Ranks in step: every update waits for all of them, or one learns for all.

With `OneLearner` rank 0 learns and infers, with the environments of all ranks of its machine in its workers; they
render on the devices that `placement` says. The other ranks own a device and wait for rank 0 at the end of every
iteration: what frees them is rank 0, or its death. On other machines the first rank serves the environments of all
ranks there (`env_server.py`): what goes through shared memory on one machine goes over the network then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from numpy.typing import NDArray

    from harness.metering.meter import RankMeter
    from systems.engine.wire.group import Group


class AllReducer:
    """Every call but `is_over` and `statistics` waits for all ranks."""

    is_synchronous = True

    def __init__(self, group: Group, meter: RankMeter) -> None:
        self._group, self._meter = group, meter

    def begin_update(self) -> None:
        """Nothing to do."""

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Their means over the ranks."""
        with self._meter.span("communicate"):
            self._group.average_gradients(parameters)

    def end_update(self) -> None:
        """Nothing to do."""

    def wait_for_ranks(self, *, broke_off: bool) -> bool:
        """Waits for the slowest."""
        with self._meter.span("wait:straggler"):
            return bool(self._group.sum(np.array([float(broke_off)]))[0])

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:  # noqa: ARG002  none is gone
        """The sum, equal on all ranks."""
        with self._meter.span("communicate"):
            return self._group.sum(own)

    def is_over(self, own: bool) -> bool:
        """As all ranks see it."""
        return own

    def statistics(self) -> dict[str, float]:
        """There are none."""
        return {}

    def final_policy(self) -> bool:
        """Rank 0 has it, as all others do."""
        return self._group.rank == 0

    def close(self) -> None:
        """Leaves the group, once all have come so far."""
        self._group.close()


class OneLearner(AllReducer):
    """Ranks agree on progress alone; weights are rank 0's, which alone collects."""

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """There are no others."""

    def wait_for_ranks(self, *, broke_off: bool) -> bool:
        """Nobody else collects."""
        return broke_off

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:  # noqa: ARG002  none is gone
        """The sum, once rank 0 has come so far."""
        with self._meter.span("communicate" if self._group.rank == 0 else "wait:learner"):
            return self._group.sum(own)
