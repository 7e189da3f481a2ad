"""The encoder of policy `auto`: for each part of an observation the network that is published for its kind.

The parts' features are joined. Pictures have one network for both heads; everything else has one tower for the policy
head and one for the value head, which share nothing but the convolutions of a small image.

Letters: M observations, C channels, H x W pixels, K numbers of all vectors, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlbench.systems.policies.encoders import NATURE, ConvEncoder, Encoder
from rlbench.systems.policies.observations import joined_vectors, stacked_images
from rlbench.systems.spaces.layout import LEAST_SIZES, Layout

NUM_UNITS = 64
"""Units of each layer of a tower."""


class Towers(nn.Module):
    """Two networks of tanh layers of 64 that read the same numbers, one for each head.

    Two layers for vectors: Schulman et al. 2017, Proximal policy optimization algorithms, section 6.1: two hidden
    layers of 64 units with tanh, and no parameters shared between the policy and the value function. `MlpPolicy` of
    Stable-Baselines3 is the same. One layer for small images: see `GridTrunk`.
    """

    def __init__(self, num_in: int, num_layers: int) -> None:
        super().__init__()
        self.policy = _tower(num_in, num_layers)
        self.value = _tower(num_in, num_layers)

    def forward(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """[M, num_in] to what the policy head reads and what the value head reads, each [M, 64]."""
        return self.policy(numbers), self.value(numbers)


class GridTrunk(nn.Sequential):
    """Three convolutions of 2x2 with 16, 32 and 64 filters and ReLU, a 2x2 max-pooling after the first.

    This is `ACModel` of Willems' rl-starter-files (model.py, 2018), the usual network for MiniGrid's observations of
    7x7x3, where one tanh layer of 64 for each head follows. It reads symbols as the numbers that they are. Grids of
    fewer than 7 cells in a row or column, of which the pooling leaves too few, go without it; a kernel is never larger
    than what is left of the grid.

    Args:
        shape: (C, H, W) of the images.
    """

    least_pooled_size = 7

    def __init__(self, shape: tuple[int, int, int]) -> None:
        num_channels, height, width = shape
        pools = min(height, width) >= self.least_pooled_size
        layers: list[nn.Module] = []
        for num_out in (16, 32, 64):
            layers += [nn.Conv2d(num_channels, num_out, (min(2, height), min(2, width))), nn.ReLU()]
            height, width = max(1, height - 1), max(1, width - 1)
            if pools and num_out == 16:
                height, width = height // 2, width // 2
                layers.append(nn.MaxPool2d(2))
            num_channels = num_out
        super().__init__(*layers, nn.Flatten())
        self.num_features = num_channels * height * width


class Grid(nn.Module):
    """`GridTrunk` and `Towers` for the one image of a layout."""

    def __init__(self, image: Layout) -> None:
        super().__init__()
        self.image = image
        (shape,) = image.images.values()
        self.trunk = GridTrunk(shape)
        self.towers = Towers(self.trunk.num_features, 1)

    def forward(self, obs: Mapping[str, Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """What the policy head reads and what the value head reads, each [M, 64]."""
        towers: tuple[Tensor, Tensor] = self.towers(self.trunk(stacked_images(obs, self.image, dtype)))
        return towers


class AutoEncoder(Encoder):
    """Features of any layout.

    Images of at least 36x36 pixels: the network of Mnih et al. 2015 with its layer of 512, as `nature` has it, for both
    heads; smaller ones: `GridTrunk` and `Towers` of one layer. Vectors, joined, with classes as one-hot vectors:
    `Towers` of two layers. Several images have a network each.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        # Lists, since modules' names must not have dots, which keys may have.
        self.pictures, self.grids = nn.ModuleList(), nn.ModuleList()
        num_shared = 0
        for key in layout.stacked:
            image = layout.with_images(key)
            if min(layout.images[key][1:]) >= LEAST_SIZES["auto"]:
                encoder = ConvEncoder(image, "auto", NATURE)
                self.pictures.append(encoder)
                num_shared += encoder.num_features
            else:
                self.grids.append(Grid(image))
        self.vectors = Towers(layout.vector_size, 2) if layout.vectors else None
        num_separate = NUM_UNITS * (len(self.grids) + (self.vectors is not None))
        if num_separate:
            self.num_value_features = num_shared + num_separate
        self.num_features = num_shared + num_separate + self.num_value_features

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Features [M, F]; `for_heads` tells which head reads which."""
        dtype = next(self.parameters()).dtype
        shared: list[Tensor] = [encoder(obs) for encoder in self.pictures]
        pairs: list[tuple[Tensor, Tensor]] = [grid(obs, dtype) for grid in self.grids]
        if self.vectors is not None:
            pairs.append(self.vectors(joined_vectors(obs, self.layout, dtype)))
        policy, value = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        parts = [*shared, *policy, *shared, *value] if pairs else shared
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _tower(num_in: int, num_layers: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(num_layers):
        layers += [nn.Linear(num_in, NUM_UNITS), nn.Tanh()]
        num_in = NUM_UNITS
    return nn.Sequential(*layers)
