"""What ranks do that share weights on rank 0: elastic averaging and the parameter server.

`weights_host.py` says who writes and reads, what blocks, what frees it, and what happens when a process dies. Gradients
that got no answer are not sent again: they may have been applied, and must not be applied twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rlbench.systems.choices.average import moving_rate
from rlbench.systems.engine.averaging.weights_host import ClientRank

if TYPE_CHECKING:
    from rlbench.harness.metering.meter import RankMeter
    from rlbench.systems.choices.average import Elastic, ParameterServer
    from rlbench.systems.engine.wire.group import Group


class ElasticRank(ClientRank):
    """A rank and the centre pull at each other (Alg. 4)."""

    def __init__(self, settings: Elastic, group: Group, meter: RankMeter, policy: torch.nn.Module) -> None:
        self._beta = beta = moving_rate(settings.beta, group.num_ranks)

        def serve(centre: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
            """Moves the centre by beta (theta - centre); returns the centre from before."""
            before = centre.clone()
            centre += beta * (sent - before)
            return before

        super().__init__(group, meter, policy, serve, settings.interval, settings.seconds)

    def _exchange(self) -> None:
        own = self._weights.get()
        centre = self._ask_server(own)
        if centre is not None:
            self._weights.set(own - self._beta * (own - centre))


class DownpourRank(ClientRank):
    """A rank sends sums of gradients, and gets weights (Alg. 3)."""

    def __init__(self, settings: ParameterServer, group: Group, meter: RankMeter, policy: torch.nn.Module) -> None:
        learning_rate = 0.0 if meter.still else settings.learning_rate
        velocity: torch.Tensor | None = None

        def serve(weights: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
            """Takes one step of the server with momentum; returns the new weights."""
            nonlocal velocity
            step = -learning_rate * gradient
            velocity = step if velocity is None else step + settings.momentum * velocity
            weights += velocity
            return weights

        super().__init__(group, meter, policy, serve, settings.interval, settings.seconds)
        self._gradient = torch.zeros_like(self._weights.get())

    def end_update(self) -> None:
        """Adds the gradient that the optimiser has stepped on, after clipping."""
        super().end_update()
        self._gradient += self._weights.gradient()

    def final_policy(self) -> bool:
        """Sends the gradients that were not sent yet, then gives rank 0's policy the server's weights; True there."""
        if self._num_updates > 0:
            with self._meter.span("communicate"):
                self._exchange()
        return super().final_policy()

    def _exchange(self) -> None:
        weights = self._ask_server(self._gradient)
        self._gradient.zero_()
        if weights is not None:
            self._weights.set(weights)
