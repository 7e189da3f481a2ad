"""Elastic averaging: each rank and a centre pull at each other (dissertation, section 3.2 and Algorithm 4).

The settings; `clients.py` has what a rank does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np
    import torch

    from harness.metering.meter import RankMeter
    from systems.engine.average import Averager
    from systems.engine.wire.group import Group


@dataclass(frozen=True, kw_only=True, slots=True)
class Elastic:
    """Every `interval` updates a rank moves towards the centre, and the centre by as much towards the rank (Alg. 4)."""

    survives_lost_rank: ClassVar[bool] = True

    interval: int = 1
    """Updates between two exchanges with the centre, tau."""
    beta: float = 0.0
    """The moving rate; 0 stands for the dissertation's 0.8 / ranks (section 3.4, Methodology)."""
    seconds: float = 2.0
    """Time limit of one exchange; one that fails is left out."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.interval < 1:
            raise ValueError(f"average.interval={self.interval}: must be at least 1")
        if not 0 <= self.beta <= 1:
            raise ValueError(f"average.beta={self.beta}: must be above 0 and at most 1, or 0 for 0.8 / ranks")
        if not self.seconds > 0:
            raise ValueError(f"average.seconds={self.seconds}: must be above 0")

    def open(
        self,
        group: Group,
        meter: RankMeter,
        policy: torch.nn.Module,
        generator: np.random.Generator,  # noqa: ARG002  nothing is random
    ) -> Averager:
        """Makes the averager of this rank; the centre lives on rank 0."""
        from systems.engine.averaging.clients import ElasticRank  # imports torch, which naming a system must not

        return ElasticRank(self, group, meter, policy)


def moving_rate(beta: float, num_ranks: int) -> float:
    """The moving rate that a setting stands for."""
    return beta or 0.8 / num_ranks
