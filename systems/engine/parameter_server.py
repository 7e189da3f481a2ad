"""Downpour: ranks send sums of gradients to a parameter server (dissertation, section 3.2 and Algorithm 3).

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
class ParameterServer:
    """Every `interval` updates a rank sends the sum of its gradients and gets the server's weights (Alg. 3)."""

    survives_lost_rank: ClassVar[bool] = True

    interval: int = 1
    """Updates between two exchanges with the server, tau."""
    learning_rate: float = 0.01
    """The server's step size, alpha, for every sum of gradients that a rank sends."""
    momentum: float = 0.9
    """The server's momentum, mu."""
    seconds: float = 2.0
    """Time limit of one exchange; one that fails is left out."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.interval < 1:
            raise ValueError(f"average.interval={self.interval}: must be at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"average.learning_rate={self.learning_rate}: must be above 0")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"average.momentum={self.momentum}: must be at least 0 and below 1")
        if not self.seconds > 0:
            raise ValueError(f"average.seconds={self.seconds}: must be above 0")

    def open(
        self,
        group: Group,
        meter: RankMeter,
        policy: torch.nn.Module,
        generator: np.random.Generator,  # noqa: ARG002  nothing is random
    ) -> Averager:
        """Makes the averager of this rank; the server lives on rank 0."""
        from systems.engine.averaging.clients import DownpourRank  # imports torch, which naming a system must not

        return DownpourRank(self, group, meter, policy)
