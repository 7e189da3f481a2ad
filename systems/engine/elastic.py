"""Elastic averaging: each rank and a centre pull at each other (dissertation, section 3.2 and Algorithm 4).

Who writes and reads, what blocks, what frees it, and what happens when a process dies: see `central.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from systems.engine.central import ClientRank

if TYPE_CHECKING:
    import numpy as np
    import torch

    from harness.meter import RankMeter
    from systems.engine.average import Averager
    from systems.engine.group import Group


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
        return _ElasticRank(self, group, meter, policy)


def moving_rate(beta: float, num_ranks: int) -> float:
    """The moving rate that a setting stands for."""
    return beta or 0.8 / num_ranks


class _ElasticRank(ClientRank):
    def __init__(self, settings: Elastic, group: Group, meter: RankMeter, policy: torch.nn.Module) -> None:
        self._beta = beta = moving_rate(settings.beta, group.num_ranks)

        def serve(centre: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
            """Moves the centre by beta (theta - centre); the answer is the centre as it was."""
            before = centre.clone()
            centre += beta * (sent - before)
            return before

        super().__init__(group, meter, policy, serve, settings.interval, settings.seconds)

    def _exchange(self) -> None:
        own = self._weights.get()
        centre = self._ask_server(own)
        if centre is not None:
            self._weights.set(own - self._beta * (own - centre))
