"""The optimisers of `LearnSettings.optimizer`: torch's functions, without the classes of `torch.optim` around them.

Making or stepping one of those classes imports torch's compiler, which nothing here uses. It costs every rank more than
a second of CPU before its first env step, as much as torch itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from rlbench.harness.contract.settings import LearnSettings

ADAM_BETAS = 0.9, 0.999
"""Kingma & Ba 2015 (arXiv:1412.6980), algorithm 1."""


class Optimizer(ABC):
    """Steps parameters along their gradients; those without one stay as they are.

    Parameters that need no gradient, such as statistics of observations, are left out.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], settings: LearnSettings) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._settings = settings
        self.learning_rate = settings.learning_rate
        """The step size of the next step."""

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Changes the parameters in place."""
        chosen = [number for number, parameter in enumerate(self.parameters) if parameter.grad is not None]
        gradients = [gradient for parameter in self.parameters if (gradient := parameter.grad) is not None]
        self._apply(chosen, gradients)

    @abstractmethod
    def _apply(self, chosen: list[int], gradients: list[Tensor]) -> None:
        """Changes the parameters at the positions `chosen`."""


class Adam(Optimizer):
    """Adam with the settings' epsilon; AdamW with their weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101)."""

    def __init__(self, parameters: Iterable[nn.Parameter], settings: LearnSettings) -> None:
        super().__init__(parameters, settings)
        self._means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._num_steps = [torch.zeros((), device=parameter.device) for parameter in self.parameters]

    def _apply(self, chosen: list[int], gradients: list[Tensor]) -> None:
        if self._settings.weight_decay:  # before the step, as torch's AdamW does
            for k in chosen:
                self.parameters[k].mul_(1 - self.learning_rate * self._settings.weight_decay)
        adam(
            [self.parameters[k] for k in chosen],
            gradients,
            [self._means[k] for k in chosen],
            [self._squares[k] for k in chosen],
            [],
            [self._num_steps[k] for k in chosen],
            fused=True,
            amsgrad=False,
            beta1=ADAM_BETAS[0],
            beta2=ADAM_BETAS[1],
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=self._settings.adam_eps,
            maximize=False,
        )


class Sgd(Optimizer):
    """Gradient descent, with Nesterov's momentum if the settings have any."""

    def __init__(self, parameters: Iterable[nn.Parameter], settings: LearnSettings) -> None:
        super().__init__(parameters, settings)
        self.velocities: list[Tensor | None] = [None] * len(self.parameters)
        """As torch keeps them: None before a parameter's first step, and always None without momentum."""

    def _apply(self, chosen: list[int], gradients: list[Tensor]) -> None:
        velocities = [self.velocities[k] for k in chosen]
        sgd(
            [self.parameters[k] for k in chosen],
            gradients,
            velocities,
            weight_decay=self._settings.weight_decay,
            momentum=self._settings.momentum,
            lr=self.learning_rate,
            dampening=0.0,
            nesterov=self._settings.momentum > 0,
            maximize=False,
        )
        for k, velocity in zip(chosen, velocities, strict=True):
            self.velocities[k] = velocity


def make_optimizer(parameters: Iterable[nn.Parameter], settings: LearnSettings) -> Optimizer:
    """Makes the optimiser that `settings.optimizer` names."""
    return {"adam": Adam, "sgd": Sgd}[settings.optimizer](parameters, settings)
