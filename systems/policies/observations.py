"""How policy networks read observations: tensors of the images and vectors of a `systems.spaces.layout.Layout`.

Letters: M observations, C channels, H x W pixels, K numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from rlbench.systems.spaces.layout import DEPTH, Classes, Layout

MAX_DEPTH_M = 10.0
"""Larger depths are read as this one."""


def stacked_images(obs: Mapping[str, Tensor], layout: Layout, dtype: torch.dtype) -> Tensor:
    """All images of M observations, scaled to 0..1 unless they hold symbols, stacked by channel: [M, C, H, W]."""
    images = [_scaled_image(obs, layout, key, dtype) for key in layout.stacked]
    return images[0] if len(images) == 1 else torch.cat(images, 1)


def channels_first(image: Tensor, layout: Layout, key: str) -> Tensor:
    """M images as they are in a table, seen as [M, C, H, W]."""
    order = layout.readings[key].order if key in layout.readings else "chw"
    if order == "hwc":
        return image.permute(0, 3, 1, 2)
    return image.unsqueeze(1) if order == "hw" else image


def joined_vectors(obs: Mapping[str, Tensor], layout: Layout, dtype: torch.dtype) -> Tensor:
    """All vectors of M observations, side by side, and classes as zeros and ones: [M, K]."""
    vectors = [_read_vector(obs[key], size, layout.classes.get(key), dtype) for key, size in layout.vectors.items()]
    return torch.cat(vectors, 1)


def _scaled_image(obs: Mapping[str, Tensor], layout: Layout, key: str, dtype: torch.dtype) -> Tensor:
    image = channels_first(obs[key], layout, key)
    if key == DEPTH:
        return image.to(dtype).clamp(0, MAX_DEPTH_M) / MAX_DEPTH_M
    divisor = layout.readings[key].divisor if key in layout.readings else 255
    return image.to(dtype) if divisor == 1 else image.to(dtype, copy=True).div_(divisor)


def _read_vector(values: Tensor, size: int, classes: Classes | None, dtype: torch.dtype) -> Tensor:
    num = len(values)
    if classes is None:
        return values.to(dtype).reshape(num, size)
    of_values, numbers = _class_numbers(classes, values.device)
    return (values.reshape(num, len(classes.sizes))[:, of_values] == numbers).to(dtype)


@lru_cache(maxsize=64)
def _class_numbers(classes: Classes, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each class of a leaf which value it is of, and its number: two int64 tensors [K]."""
    of_values = [value for value, size in enumerate(classes.sizes) for _ in range(size)]
    pairs = zip(classes.starts, classes.sizes, strict=True)
    numbers = [number for start, size in pairs for number in range(start, start + size)]
    return torch.tensor(of_values, device=device), torch.tensor(numbers, device=device)
