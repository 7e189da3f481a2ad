"""A policy's parameters as one flat vector, and how far the vectors of several ranks lie apart.

Letters: P parameters of a policy, K entries of a sketch, R ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rlbench.systems.engine.wire.sockets import Answer

SKETCH_SIZE = 4096


class Weights:
    """The parameters of one policy, all of one dtype; they keep their places and devices.

    Those that need no gradient are statistics of observations. Ranks that do not wait for each other keep their own, so
    that a rank learns from an observation as it was read when it was acted on; they lie in the vector all the same.
    """

    def __init__(self, policy: torch.nn.Module) -> None:
        self.parameters = list(policy.parameters())
        self._sizes = [parameter.numel() for parameter in self.parameters]
        dtypes = {parameter.dtype for parameter in self.parameters}
        assert len(dtypes) == 1, f"parameters of several dtypes: {dtypes}"
        self.are_learned = torch.cat(
            [torch.full((parameter.numel(),), parameter.requires_grad) for parameter in self.parameters]
        )
        """Which of the parameters are no statistics: bool [P], on the CPU."""

    def get(self) -> torch.Tensor:
        """A copy of the parameters, [P], on the CPU."""
        with torch.no_grad():
            return torch.cat([parameter.reshape(-1) for parameter in self.parameters]).cpu()

    def learned(self) -> torch.Tensor:
        """What `get` gives, with zeros for statistics: their size would hide how far the weights lie apart."""
        return torch.where(self.are_learned, self.get(), 0.0)

    def gradient(self) -> torch.Tensor:
        """A copy of the gradients, [P], on the CPU; zeros where there is none."""
        with torch.no_grad():
            return torch.cat(
                [
                    (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(-1)
                    for parameter in self.parameters
                ]
            ).cpu()

    def set(self, flat: torch.Tensor) -> None:
        """Writes `flat`, [P], into the parameters; statistics stay as they are."""
        with torch.no_grad():
            for parameter, part in zip(self.parameters, torch.split(flat, self._sizes), strict=True):
                if parameter.requires_grad:
                    parameter.copy_(part.view_as(parameter))


def to_bytes(flat: torch.Tensor) -> bytes:
    """The entries of a CPU tensor, as they lie in memory."""
    return flat.numpy().tobytes()


def from_bytes(data: Answer, like: torch.Tensor) -> torch.Tensor:
    """The tensor, of the dtype of `like`, that `to_bytes` was given; raises ValueError unless sizes are the same."""
    expected = like.numel() * like.element_size()
    if len(data) != expected:
        raise ValueError(f"{len(data)} bytes came, {expected} are the weights of this policy: ranks differ")
    return torch.frombuffer(bytearray(data) if isinstance(data, bytes) else data, dtype=like.dtype)


class Sketch:
    """Shrinks vectors of P entries to K; the squared distances between vectors keep their expected values.

    Each entry is added to one of the K with a random sign (Charikar, Chen and Farach-Colton 2002). The relative
    standard error of a distance is about 1 / sqrt(2 K), 1.1 % here; with P at most K nothing is lost. So at the
    end of an iteration 32 KB from each other rank, instead of all weights, tell a rank how far all lie apart.
    """

    def __init__(self, num_parameters: int) -> None:
        self._size = min(SKETCH_SIZE, num_parameters)
        generator = np.random.default_rng(num_parameters)  # the same on all ranks
        if num_parameters <= SKETCH_SIZE:
            self._places = np.arange(num_parameters)
            self._signs = np.ones(num_parameters)
        else:
            self._places = generator.integers(self._size, size=num_parameters)
            self._signs = generator.choice([-1.0, 1.0], num_parameters)

    def of(self, flat: torch.Tensor) -> NDArray[np.float64]:
        """The sketch, [K], of a CPU tensor [P]."""
        return np.bincount(self._places, flat.numpy() * self._signs, self._size).astype(np.float64)


def consensus_distance(vectors: Sequence[NDArray[np.float64]]) -> float:
    """The mean over ranks of the distance between a rank's vector and the mean of all R vectors, each [K]."""
    stacked = np.stack(vectors)
    return float(np.linalg.norm(stacked - stacked.mean(0), axis=1).mean())
