"""Encoders turn observations into features; here are those of the policies `small`, `conv` and `nature`.

`systems.policies.resnet` has the encoder of `resnet`.

Letters: M observations, C channels, H x W pixels, K numbers of all vectors, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlbench.systems.policies.observations import MAX_DEPTH_M, channels_first, joined_vectors, stacked_images
from rlbench.systems.spaces.layout import DEPTH, Layout

NUM_AT_ONCE = 128
"""Images that a CPU takes through the convolutions at a time, so that the data between two layers stays in its cache.
With 3x72x128 or 4x84x84 pixels, 64 to 256 at a time are within 8 %; all 2048 of a mini-batch take twice as long."""


class Encoder(nn.Module):
    """Makes features [M, F] of M observations."""

    num_features: int
    """F."""
    num_value_features: int = 0
    """The last so many features are for the value head alone, and the others for the policy head alone; 0: both heads
    read all of them."""

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Features [M, F]."""
        raise NotImplementedError

    def for_heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The features [M, F] that the policy head reads, and those that the value head reads."""
        if not self.num_value_features:
            return features, features
        start = self.num_features - self.num_value_features
        return features[:, :start], features[:, start:]


def conv_size(size: int, *layers: tuple[int, int]) -> int:
    """What remains of `size` pixels after convolutions of (kernel, stride) without padding."""
    for kernel, stride in layers:
        size = (size - kernel) // stride + 1
    return size


class SmallEncoder(Encoder):
    """Cheap features and one hidden layer, for runs on a CPU.

    Each number x of a vector becomes sign(x) log(1 + |x|), exp(-|x|) and exp(-4 |x|): distances stay in range, and
    even the last 0.2 m to a goal differ. Depth becomes a scan of 16 columns, each the nearest x of the central rows,
    given as x / 10 m and exp(-x). Pixels, and other images if they have one size, go through two small convolutions.
    """

    num_columns = 16

    def __init__(self, layout: Layout, num_features: int = 128) -> None:
        super().__init__()
        self.layout = layout
        self.num_features = num_features
        size = 3 * layout.vector_size
        if DEPTH in layout.images:
            size += 2 * self.num_columns
        self.pictures = layout.pictures
        if self.pictures.images:
            channels, height, width = self.pictures.image_shape("small")
            self.convs = nn.Sequential(
                nn.Conv2d(channels, 16, 8, stride=8),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, stride=2),
                nn.ReLU(),
                nn.Flatten(),
            )
            size += 16 * conv_size(height, (8, 8), (3, 2)) * conv_size(width, (8, 8), (3, 2))
        self.hidden = nn.Sequential(nn.Linear(size, num_features), nn.Tanh())

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Features [M, F]."""
        dtype = next(self.hidden.parameters()).dtype
        parts = []
        if self.layout.vectors:
            vectors = joined_vectors(obs, self.layout, dtype)
            sizes = vectors.abs()
            parts += [vectors.sign() * sizes.log1p(), torch.exp(-sizes), torch.exp(-4 * sizes)]
        if DEPTH in self.layout.images:
            scan = self._scan(channels_first(obs[DEPTH], self.layout, DEPTH)).to(dtype)
            parts += [scan / MAX_DEPTH_M, torch.exp(-scan)]
        if self.pictures.images:
            parts.append(self.convs(stacked_images(obs, self.pictures, dtype)))
        features: Tensor = self.hidden(torch.cat(parts, 1))
        return features

    def _scan(self, depth: Tensor) -> Tensor:
        """The nearest depth in metres of each column group in the middle eighth of the rows: [M, 16]."""
        height = depth.shape[2]
        half = max(1, height // 16)
        rows = depth[:, 0, max(0, height // 2 - half) : height // 2 + half]  # [M, rows, W]
        nearest = -nn.functional.adaptive_max_pool1d(-rows.amin(1), self.num_columns)
        return nearest.clamp(0, MAX_DEPTH_M)


SIMPLIFIED = ((8, 4, 32), (4, 2, 64), (3, 2, 128))
"""Sample Factory's simplified network (appendix A.1.3, figure A.1): kernel, stride and channels of each convolution."""
NATURE = ((8, 4, 32), (4, 2, 64), (3, 1, 64))
"""Mnih et al. 2015, Human-level control through deep reinforcement learning, 'Model architecture'."""


class ConvEncoder(Encoder):
    """Three convolutions and a fully connected layer of 512, each with ReLU.

    Vectors, if there are any, go through two layers of 128, like the game information in Sample Factory's full network
    (figure A.1).
    """

    def __init__(
        self, layout: Layout, kind: str = "conv", layers: tuple[tuple[int, int, int], ...] = SIMPLIFIED
    ) -> None:
        super().__init__()
        self.layout = layout
        num_channels, height, width = layout.image_shape(kind)
        convs: list[nn.Module] = []
        for kernel, stride, num_out in layers:
            convs += [nn.Conv2d(num_channels, num_out, kernel, stride=stride), nn.ReLU(inplace=True)]
            num_channels = num_out
        self.convs = nn.Sequential(*convs, nn.Flatten())
        sizes = [(kernel, stride) for kernel, stride, _ in layers]
        flat = num_channels * conv_size(height, *sizes) * conv_size(width, *sizes)
        self.hidden = nn.Sequential(nn.Linear(flat, 512), nn.ReLU(inplace=True))
        self.num_features = 512
        if layout.vectors:
            self.vectors = nn.Sequential(nn.Linear(layout.vector_size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
            self.num_features += 128

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Features [M, F]."""
        weight = next(self.convs.parameters())
        images = {key: obs[key] for key in self.layout.images}
        if weight.is_cuda:
            seen = self.convs(stacked_images(images, self.layout, weight.dtype))
        else:
            num_images = len(next(iter(images.values())))
            seen = torch.cat(
                [
                    self._convolve(
                        {key: image[start : start + NUM_AT_ONCE] for key, image in images.items()}, weight.dtype
                    )
                    for start in range(0, num_images, NUM_AT_ONCE)
                ]
            )
        features: Tensor = self.hidden(seen)
        if not self.layout.vectors:
            return features
        return torch.cat((features, self.vectors(joined_vectors(obs, self.layout, weight.dtype))), 1)

    def _convolve(self, images: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
        """Takes some images through the convolutions, in the memory format that is fastest on a CPU."""
        stacked = stacked_images(images, self.layout, dtype).contiguous(memory_format=torch.channels_last)
        seen: Tensor = self.convs(stacked)
        return seen
