"""Downpour: ranks send sums of gradients to a parameter server (dissertation, section 3.2 and Algorithm 3).

Who writes and reads, what blocks, what frees it, and what happens when a process dies: see `central.py`. Gradients
whose answer did not come are not sent again: they may have been applied, and must not be twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from systems.engine.central import ClientRank

if TYPE_CHECKING:
    import numpy as np

    from harness.meter import RankMeter
    from systems.engine.average import Averager
    from systems.engine.group import Group


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
        return _DownpourRank(self, group, meter, policy)


class _DownpourRank(ClientRank):
    def __init__(self, settings: ParameterServer, group: Group, meter: RankMeter, policy: torch.nn.Module) -> None:
        velocity: torch.Tensor | None = None

        def serve(weights: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
            """One step of the server with momentum; the answer is the new weights."""
            nonlocal velocity
            step = -settings.learning_rate * gradient
            velocity = step if velocity is None else step + settings.momentum * velocity
            weights += velocity
            return weights

        super().__init__(group, meter, policy, serve, settings.interval, settings.seconds)
        self._gradient = torch.zeros_like(self._weights.get())

    def end_update(self) -> None:
        """Adds the gradient that the optimiser has stepped on, clipped as it was."""
        super().end_update()
        self._gradient += self._weights.gradient()

    def final_policy(self) -> bool:
        """The server's weights on rank 0, with the gradients that were not sent yet; True there."""
        if self._num_updates > 0:
            with self._meter.span("communicate"):
                self._exchange()
        return super().final_policy()

    def _exchange(self) -> None:
        weights = self._ask_server(self._gradient)
        self._gradient.zero_()
        if weights is not None:
            self._weights.set(weights)
