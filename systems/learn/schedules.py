"""What changes while a run goes on: the learning rate, and the weight of the entropy bonus.

Both follow the part of the budget that is spent, which ranks in step agree on, so they are alike on all of these.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.optimizers import Adam


def decayed(schedule: str, spent: float, settings: LearnSettings) -> float:
    """What is left of 1 when a part of the budget is `spent`, 0 to 1.

    `constant`; `linear`, to 0; `cosine`, half a period to 0 (Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5);
    `step`, `step_factor` once more at each of `step_at`.
    """
    match schedule:
        case "linear":
            return 1 - spent
        case "cosine":
            return (1 + math.cos(math.pi * spent)) / 2
        case "step":
            return float(settings.step_factor ** bisect.bisect_right(settings.step_at, spent))
        case _:
            return 1.0


class EntropyCoefficient:
    """The weight of the entropy bonus; `spend` and `learn` change it.

    With `entropy_schedule=learned` it is alpha of VER section 4 (after Haarnoja et al. 2018, arXiv:1812.05905, section
    5): alpha (H - target) is minimised, so it grows while the entropy H is below its target. Its logarithm is learned,
    by Adam at the policy's learning rate; ranks that average gradients average its gradient too.
    """

    def __init__(self, settings: LearnSettings, device: str) -> None:
        self._settings = settings
        self._fixed = settings.entropy_coef
        self._log: nn.Parameter | None = None
        if settings.entropy_schedule == "learned":
            self._log = nn.Parameter(torch.tensor(math.log(settings.entropy_coef), device=device))
            self._optimizer = Adam([self._log], replace(settings, weight_decay=0.0))  # it is no weight

    @property
    def value(self) -> Tensor | float:
        """The coefficient, without a gradient."""
        return self._fixed if self._log is None else self._log.detach().exp()

    def spend(self, spent: float, learning_rate: float) -> None:
        """Goes on to where a part of the budget is `spent`."""
        if self._log is None:
            self._fixed = self._settings.entropy_coef * decayed(self._settings.entropy_schedule, spent, self._settings)
        else:
            self._optimizer.learning_rate = learning_rate

    def note(self, entropy: Tensor) -> list[nn.Parameter]:
        """Takes in a mini-batch's mean entropy; returns what has a gradient now, if it is learned."""
        if self._log is None:
            return []
        self._log.grad = self.value * (entropy.detach() - self._settings.entropy_target)
        return [self._log]

    def step(self) -> None:
        """Learns from what was noted."""
        if self._log is not None:
            self._optimizer.step()
