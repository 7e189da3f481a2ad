"""What a policy network reads from an observation space: images and vectors, by key.

Letters: M observations, C channels, H x W pixels, K numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium
import torch
from torch import Tensor

PIXELS = "pixels"
DEPTH = "depth"
MAX_DEPTH_M = 10.0
"""Larger depths are read as this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The entries of an observation space, sorted into images and vectors."""

    images: Mapping[str, tuple[int, int, int]]
    """(C, H, W) of `pixels` and `depth`, where the space has them."""
    vectors: Mapping[str, int]
    """K of every other entry."""

    @classmethod
    def of(cls, space: gymnasium.spaces.Dict) -> Layout:
        """Sorts a space's entries; raises ValueError for one that no policy network reads."""
        images: dict[str, tuple[int, int, int]] = {}
        vectors: dict[str, int] = {}
        for key, entry in space.spaces.items():
            shape = entry.shape or ()
            if not isinstance(entry, gymnasium.spaces.Box):
                raise ValueError(f"observation '{key}': must be a Box, is {entry}")  # noqa: TRY004  # a user's error
            if key in {PIXELS, DEPTH}:
                if len(shape) != 3:
                    raise ValueError(f"observation '{key}': must have shape (C, H, W), has {shape}")
                images[key] = (shape[0], shape[1], shape[2])
            elif len(shape) == 1:
                vectors[key] = shape[0]
            else:
                raise ValueError(
                    f"observation '{key}': must have shape (K,), has {shape}; images are called '{PIXELS}' or '{DEPTH}'"
                )
        if not images and not vectors:
            raise ValueError("observation space: must have an entry, is empty")
        return cls(images=images, vectors=vectors)

    @property
    def vector_size(self) -> int:
        """K of all vectors together."""
        return sum(self.vectors.values())

    def image_shape(self, kind: str, least: int) -> tuple[int, int, int]:
        """(C, H, W) of all images stacked by channel.

        Raises:
            ValueError: there is no image, their sizes differ, or they are smaller than `least` x `least`.
        """
        sizes = {shape[1:] for shape in self.images.values()}
        if not sizes:
            raise ValueError(
                f"policy {kind}: must have '{PIXELS}' or '{DEPTH}' to look at, got {', '.join(self.vectors)}; "
                "use policy small"
            )
        if len(sizes) > 1:
            raise ValueError(f"policy {kind}: '{PIXELS}' and '{DEPTH}' must have one size, have {self.images}")
        height, width = sizes.pop()
        if min(height, width) < least:
            raise ValueError(
                f"policy {kind}: images must be at least {least}x{least}, are {height}x{width}; "
                "raise the resolution or use policy small"
            )
        return sum(shape[0] for shape in self.images.values()), height, width


def stacked_images(obs: Mapping[str, Tensor], layout: Layout, dtype: torch.dtype) -> Tensor:
    """All images of M observations, scaled to 0..1 and stacked by channel: [M, C, H, W]."""
    images = []
    if PIXELS in layout.images:
        images.append(obs[PIXELS].to(dtype, copy=True).div_(255))
    if DEPTH in layout.images:
        images.append(obs[DEPTH].to(dtype).clamp(0, MAX_DEPTH_M) / MAX_DEPTH_M)
    return images[0] if len(images) == 1 else torch.cat(images, 1)


def joined_vectors(obs: Mapping[str, Tensor], layout: Layout, dtype: torch.dtype) -> Tensor:
    """All vectors of M observations, side by side: [M, K]."""
    return torch.cat([obs[key].to(dtype) for key in layout.vectors], 1)
