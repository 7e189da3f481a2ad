"""`Central`: one learner for all ranks (Sample Factory section 3.1; on several GPUs as VER section 5.1 ran it).

Rank 0 learns and infers, with the environments of all ranks of its machine in its workers; they render on the devices
that `placement` says. The other ranks own a device and wait for rank 0 at the end of every iteration: what frees them
is rank 0, or its death. On other machines the first rank serves the environments of all ranks there (`env_server.py`):
what goes through shared memory on one machine goes over the network then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from systems.engine.average import AllReducer

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from harness.metering.meter import RankMeter
    from systems.engine.average import Averager
    from systems.engine.wire.group import Group

PLACEMENTS = ("separate", "together")


def rendering_rank(env: int, rank: int, ranks: range, placement: str) -> int:
    """The rank on whose device an environment renders.

    Args:
        env: counted over the ranks of the machine.
        rank: to which the environment belongs.
        ranks: of the machine.
        placement: `separate` leaves rank 0's device to learning and inference and deals the environments of its machine
            to the other devices there (VER section 5.1); `together`, and on other machines, it is the rank's own.
    """
    if placement == "separate" and 0 in ranks and len(ranks) > 1:
        return ranks[1 + env % (len(ranks) - 1)]
    return rank


@dataclass(frozen=True, kw_only=True, slots=True)
class Central:
    """One learner for all ranks."""

    placement: str = "separate"
    """Where environments render: `separate` from learning and inference, or `together` with them on all ranks."""

    survives_lost_rank: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the field."""
        if self.placement not in PLACEMENTS:
            raise ValueError(f"average.placement={self.placement}: must be one of: {', '.join(PLACEMENTS)}")

    def open(
        self,
        group: Group,
        meter: RankMeter,
        policy: torch.nn.Module,  # noqa: ARG002  there is but one
        generator: np.random.Generator,  # noqa: ARG002  nothing is drawn
    ) -> Averager:
        """Makes a rank's averager."""
        return _OneLearner(group, meter)


class _OneLearner(AllReducer):
    """Ranks agree on progress alone; weights are rank 0's, which alone collects."""

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        pass

    def wait_for_ranks(self, *, broke_off: bool) -> bool:
        return broke_off

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:  # noqa: ARG002  none is gone
        with self._meter.span("communicate" if self._group.rank == 0 else "wait:learner"):
            return self._group.sum(own)
