"""How ranks agree: `AllReduce` averages the gradients of every mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from harness.meter import RankMeter
    from systems.engine.group import Group


@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduce:
    """Gradients are averaged over all ranks before every optimiser step (DD-PPO eq. 4)."""

    def open(self, group: Group, meter: RankMeter) -> Callable[[Iterable[torch.nn.Parameter]], None]:
        """The call that turns local gradients into what the optimiser steps with; waits for all ranks."""

        def average(parameters: Iterable[torch.nn.Parameter]) -> None:
            with meter.span("communicate"):
                group.average_gradients(parameters)

        return average
