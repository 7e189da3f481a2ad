"""The policy head, and the distribution over actions of any space that it gives.

    head = ActionHead(layout, num_units)
    rows, log_probs = head(hidden).sample(generator)    # rows [N, K], as systems.spaces.actions lays them out

Choices are categorical, bits are Bernoulli, numbers Gaussian with a diagonal covariance. The parts of an action are
independent of each other: log-probabilities, entropies and divergences add up, in the order of the parts.

Where numbers are cut to their bounds (`clip`), the density is that of the number before it is cut, as in the published
results of Stable-Baselines3 and CleanRL. Where they are squashed (`tanh`), it is that of the squashed number, in the
environment's units (Haarnoja et al. 2018, appendix C): log N(u) - sum log |da/du|, a = low + (tanh(u) + 1)/2 * (high -
low). Rows hold u.

Letters: N samples, U units, K numbers of a row, A actions of a choice, n bits or numbers, Q nodes of the quadrature.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cache
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from rlbench.systems.spaces.actions import STDS, ActionLayout, Bits, Categorical, Numbers, Part, Std

NUM_NODES = 32
"""Of the quadrature: a squashed number's entropy is off by 1e-7 at most where its deviation is 1, by 3e-3 where 3."""


class ActionDistribution(ABC):
    """N distributions over actions; rows are int64, or float32 if there is a Box."""

    @abstractmethod
    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws one action of each: (rows [N, K], their log-probabilities [N]); the generator is on their device."""

    @abstractmethod
    def log_prob(self, rows: Tensor) -> Tensor:
        """Log-probabilities (of numbers: log-densities) [N] of rows [N, K]."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropies [N], in nats; of numbers: differential entropies."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """KL(self || other) [N], in nats; the other one is of the same layout."""

    @abstractmethod
    def mode(self) -> Tensor:
        """The likeliest rows [N, K]; where numbers are squashed, u is the Gaussian's mean."""


class ActionHead(nn.Linear):
    """A linear layer that gives what the distribution needs; for a single choice it is nothing else.

    Args:
        layout: of the actions.
        num_units: U.
        std: standard deviations are `shared` by all states, the parameter `log_std` (zeros at first), or `learned`,
            outputs of the layer.

    Raises:
        ValueError: `std` is unknown.
    """

    log_std: nn.Parameter

    def __init__(self, layout: ActionLayout, num_units: int, std: Std = "shared") -> None:
        if std not in STDS:
            raise ValueError(f"action std {std!r}: unknown; must be one of: {', '.join(STDS)}")
        sizes = [_num_outputs(part, std) for part in layout.parts]
        super().__init__(num_units, sum(sizes))
        self.layout = layout
        self._sizes = sizes
        self._log_scales = [_log_scale(part, layout) for part in layout.parts]
        self._is_discrete = layout.is_discrete
        self._is_shared = std == "shared"
        num_numbers = sum(part.size for part in layout.parts if isinstance(part, Numbers))
        if self._is_shared and num_numbers:
            self.log_std = nn.Parameter(torch.zeros(num_numbers))

    def forward(self, hidden: Tensor) -> ActionDistribution:  # type: ignore[override]  # what it is a head of
        """The distributions over actions that belong to hidden values [N, U]."""
        outputs = super().forward(hidden)  # [N, sum of sizes]
        if self._is_discrete:
            return _Choice(outputs)
        distributions: list[ActionDistribution] = []
        used = 0
        columns = outputs.split_with_sizes(self._sizes, 1)
        for part, output, log_scale in zip(self.layout.parts, columns, self._log_scales, strict=True):
            match part:
                case Categorical():
                    distributions.append(_Choice(output))
                case Bits():
                    distributions.append(_Bits(output))
                case Numbers():
                    if self._is_shared:
                        mean, log_std = output, self.log_std[used : used + part.size].expand_as(output)
                        used += part.size
                    else:
                        mean, log_std = output.chunk(2, 1)
                    distributions.append(_Gaussian(mean, log_std, log_scale))
        return distributions[0] if len(distributions) == 1 else _Joint(distributions, self.layout)


class _Choice(ActionDistribution):
    """Categorical."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = torch.log_softmax(logits, -1)  # [N, A]

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        # Among exponential variables with rates p, variable i is the smallest with probability p_i.
        waits = torch.empty_like(self.log_probs).exponential_(generator=generator)
        rows = (self.log_probs - waits.log()).argmax(-1, keepdim=True)
        return rows, self.log_probs.gather(1, rows).squeeze(1)

    def log_prob(self, rows: Tensor) -> Tensor:
        return self.log_probs.gather(1, rows.long()).squeeze(1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl(self, other: Self) -> Tensor:
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1, keepdim=True)


class _Bits(ActionDistribution):
    """Independent Bernoulli variables."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # [N, n]

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows = (torch.empty_like(self.logits).uniform_(generator=generator) < self.logits.sigmoid()).long()
        return rows, self.log_prob(rows)

    def log_prob(self, rows: Tensor) -> Tensor:
        return logsigmoid((2 * rows - 1) * self.logits).sum(-1)

    def entropy(self) -> Tensor:
        return -self._expect(logsigmoid(self.logits), logsigmoid(-self.logits))

    def kl(self, other: Self) -> Tensor:
        ones = logsigmoid(self.logits) - logsigmoid(other.logits)
        zeros = logsigmoid(-self.logits) - logsigmoid(-other.logits)
        return self._expect(ones, zeros)

    def mode(self) -> Tensor:
        return (self.logits > 0).long()

    def _expect(self, ones: Tensor, zeros: Tensor) -> Tensor:
        """The mean of what each bit is worth, [N, n] for a one and [N, n] for a zero, added up: [N]."""
        return (self.logits.sigmoid() * ones + (-self.logits).sigmoid() * zeros).sum(-1)


class _Gaussian(ActionDistribution):
    """Independent normal variables, squashed into their bounds where `log_scale`, sum log (high - low)/2, is given."""

    def __init__(self, mean: Tensor, log_std: Tensor, log_scale: float | None) -> None:
        self.mean = mean  # [N, n]
        self.log_std = log_std  # [N, n]
        self.log_scale = log_scale

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        # Rounded first: the log-probability is that of the row which is kept.
        rows = (self.mean + self.log_std.exp() * noise).detach().float()
        return rows, self.log_prob(rows)

    def log_prob(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.mean.dtype)
        deviations = (rows - self.mean) * (-self.log_std).exp()
        log_probs = (-0.5 * deviations.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        return log_probs if self.log_scale is None else log_probs - _log_slope(rows).sum(-1) - self.log_scale

    def entropy(self) -> Tensor:
        entropies = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
        if self.log_scale is None:
            return entropies
        nodes, weights = _nodes(self.mean.dtype, self.mean.device)  # [Q], [Q]
        at = self.mean.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * nodes  # [N, n, Q]
        return entropies + (_log_slope(at) @ weights).sum(-1) + self.log_scale

    def kl(self, other: Self) -> Tensor:
        # Squashing both by the same function leaves it as it is.
        squares = (2 * self.log_std).exp() + (self.mean - other.mean).square()
        return (other.log_std - self.log_std + 0.5 * (squares * (-2 * other.log_std).exp() - 1)).sum(-1)

    def mode(self) -> Tensor:
        return self.mean.detach().float()


class _Joint(ActionDistribution):
    """Several parts."""

    def __init__(self, parts: list[ActionDistribution], layout: ActionLayout) -> None:
        self.parts = parts
        self.sizes = [part.size for part in layout.parts]

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        drawn = [part.sample(generator) for part in self.parts]
        return torch.cat([rows for rows, _ in drawn], 1), _add_up([log_probs for _, log_probs in drawn])

    def log_prob(self, rows: Tensor) -> Tensor:
        columns = rows.split_with_sizes(self.sizes, 1)
        return _add_up([part.log_prob(of) for part, of in zip(self.parts, columns, strict=True)])

    def entropy(self) -> Tensor:
        return _add_up([part.entropy() for part in self.parts])

    def kl(self, other: Self) -> Tensor:
        return _add_up([part.kl(of) for part, of in zip(self.parts, other.parts, strict=True)])

    def mode(self) -> Tensor:
        return torch.cat([part.mode() for part in self.parts], 1)


def _num_outputs(part: Part, std: Std) -> int:
    match part:
        case Categorical() | Bits():
            return part.num
        case Numbers():
            return part.size if std == "shared" else 2 * part.size


def _log_scale(part: Part, layout: ActionLayout) -> float | None:
    """What numbers are stretched by after the tanh, as a sum of logarithms; None for what is not squashed."""
    if not isinstance(part, Numbers) or layout.bounds != "tanh":
        return None
    return float(np.log((part.high.astype(np.float64) - part.low.astype(np.float64)) / 2).sum())


def _log_slope(values: Tensor) -> Tensor:
    """log(1 - tanh(u)^2) of each u, without loss of digits where the tanh is close to 1."""
    return 2 * (math.log(2) - values - softplus(-2 * values))


def _add_up(terms: list[Tensor]) -> Tensor:
    return sum(terms[1:], terms[0])


@cache
def _nodes(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights [Q] of the Gauss-Hermite quadrature of a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NUM_NODES)
    with torch.inference_mode(mode=False):  # they are kept, and gradients go through them later
        return (
            torch.tensor(nodes, dtype=dtype, device=device),
            torch.tensor(weights / weights.sum(), dtype=dtype, device=device),
        )
