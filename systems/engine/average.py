"""How ranks agree on weights and on progress: the protocol, and `AllReduce`, in which every update waits for all ranks.

    each update:          begin_update, forward and backward pass, average_gradients, clipping, step, end_update
    after collecting:     wait_for_ranks
    end of an iteration:  agree, is_over, statistics, in this order
    after training:       final_policy, close

Who blocks: every call of `AllReduce` but `is_over` and `statistics` waits for all ranks; asynchronous variants
(`gossip.py`, `elastic.py`, `parameter_server.py`) wait for nobody longer than their time limit. What frees them, and
what happens when a rank dies, stands in `group.py` and in `mailbox.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from harness.metering.meter import RankMeter
    from systems.engine.wire.group import Group


class Averager(Protocol):
    """What one rank does to agree with the others on weights and on progress."""

    is_synchronous: bool
    """Whether every update waits for all ranks."""

    def begin_update(self) -> None:
        """Called before the gradients of an update are computed."""

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Called between the backward pass and gradient clipping; may replace the gradients."""

    def end_update(self) -> None:
        """Called after the optimiser step; may replace the weights."""

    def wait_for_ranks(self, *, broke_off: bool) -> bool:
        """The barrier after collecting; asynchronous ranks have none.

        `broke_off`: whether this rank has broken its rollout off; returns whether any that waits here has.
        """

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:
        """The sum of an array over the ranks, all of the same length every time.

        Asynchronous: `own` plus what was last heard from each other rank; nothing for a rank that was never heard. Of a
        rank that is gone only the first `num_lasting` entries count on.
        """

    def is_over(self, own: bool) -> bool:
        """Whether the run is over, `own` being this rank's opinion.

        Synchronous: `own`, which is equal on all ranks. Asynchronous: once any rank has said so; tells the others.
        """

    def statistics(self) -> dict[str, float]:
        """What this rank knows about agreement, for its time series; as of the last `agree`, always the same keys."""

    def final_policy(self) -> bool:
        """Whether this rank is the one that leaves the weights; its policy then holds the ones all ranks agree on."""

    def close(self) -> None:
        """Leaves the group together with the ranks that are still there."""


class Average(Protocol):
    """The settings of one way to agree."""

    survives_lost_rank: ClassVar[bool]
    """Whether the run goes on when the process of a rank is gone."""

    def open(self, group: Group, meter: RankMeter, policy: torch.nn.Module, generator: np.random.Generator) -> Averager:
        """Makes this rank's averager, on all ranks alike, once they have equal weights.

        Args:
            group: the ranks.
            meter: waiting and communication are its `communicate` spans; the barrier is `wait:straggler`.
            policy: whose parameters are agreed upon; on its final device.
            generator: this rank's own stream, for whatever is chosen at random.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduce:
    """Gradients are averaged over all ranks before every optimiser step (DD-PPO eq. 4)."""

    survives_lost_rank: ClassVar[bool] = False

    def open(
        self,
        group: Group,
        meter: RankMeter,
        policy: torch.nn.Module,  # noqa: ARG002  gradients come with each call
        generator: np.random.Generator,  # noqa: ARG002  nothing is random
    ) -> Averager:
        """Makes an averager whose calls wait for all ranks."""
        return AllReducer(group, meter)


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
