"""Which Boxes are images, in which order their numbers lie, and by what these are divided.

Letters: C channels, H x W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from gymnasium.spaces import Box

Order = Literal["chw", "hwc", "hw"]
ORDERS = ("auto", "hwc", "chw")
"""What a scenario may say of its images: `auto` finds the order of each."""
USUAL_CHANNELS = (1, 3, 4)
LEAST_SIZE, LEAST_GREY_SIZE = 3, 8
"""Fewer pixels in a row or column, with channels and without, are no image."""
LEAST_PICTURE = 28
"""Smaller images of bytes hold symbols, whatever their bounds say: MiniGrid's grids have up to 25x25 cells with symbols
up to 10, and bounds of 0 and 255. The smallest pictures in use have 28x28 pixels."""
MOST_SYMBOLS = 32
"""Bytes up to here are symbols as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """How a Box is read as an image."""

    order: Order
    shape: tuple[int, int, int]
    """(C, H, W), whatever the order."""
    divisor: float
    """Numbers are divided by this: 255 for pictures of bytes, 1 for symbols and numbers within 0 to 1."""


def image_of(key: str, box: Box, image_order: str = "auto") -> Image | None:
    """Reads a Box as an image, or finds that it is none.

    Images are Boxes of three dimensions with bytes (uint8) or with numbers from 0 to 1, of at least 3x3 pixels, and
    Boxes of two dimensions with bytes, of at least 8x8. With `auto` the channels come last where the last dimension is
    1, 3 or 4 or is smaller than both others, and first where the first is smaller than both others.

    Args:
        key: what errors call it.
        box: any shape.
        image_order: one of `ORDERS`.

    Raises:
        ValueError: the order is unknown, or `auto` does not find one.
    """
    if image_order not in ORDERS:
        raise ValueError(f"image_order={image_order}: unknown; must be one of: {', '.join(ORDERS)}")
    shape = tuple(int(size) for size in box.shape)
    if len(shape) == 2 and box.dtype == np.uint8 and min(shape) >= LEAST_GREY_SIZE:
        return _image(box, "hw", (1, *shape))
    if len(shape) != 3 or 0 in shape or sorted(shape)[1] < LEAST_SIZE or not _holds_an_image(box):
        return None
    order = _order(key, shape) if image_order == "auto" else image_order
    first, second, third = shape
    image = _image(box, "hwc", (third, first, second)) if order == "hwc" else _image(box, "chw", (first, second, third))
    return image if min(image.shape[1:]) >= LEAST_SIZE else None


def _holds_an_image(box: Box) -> bool:
    """Whether the numbers may be an image's: bytes, or within 0 to 1."""
    return box.dtype == np.uint8 or bool(box.low.min() >= 0 and box.high.max() <= 1)


def _order(key: str, shape: tuple[int, ...]) -> Order:
    first, second, third = shape
    is_first = first < min(second, third)
    is_last = third in USUAL_CHANNELS or third < min(first, second)
    if is_first == is_last:
        raise ValueError(
            f"observation '{key}': shape {shape} does not show where the channels are; set image_order=hwc or chw"
        )
    return "chw" if is_first else "hwc"


def _image(box: Box, order: Order, shape: tuple[int, ...]) -> Image:
    channels, height, width = shape
    is_picture = box.dtype == np.uint8 and box.high.max() > MOST_SYMBOLS and min(height, width) >= LEAST_PICTURE
    return Image(order=order, shape=(channels, height, width), divisor=255 if is_picture else 1)
