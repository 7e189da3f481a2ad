from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box
from numpy.typing import DTypeLike

from rlbench.systems.spaces.images import Image, image_of


def bytes_of(*shape: int, high: int = 255) -> Box:
    """A Box of bytes."""
    return Box(0, high, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "order", "read"),
    [
        ((84, 84, 3), "hwc", (3, 84, 84)),
        ((210, 160, 3), "hwc", (3, 210, 160)),
        ((96, 96, 1), "hwc", (1, 96, 96)),
        ((84, 84, 12), "hwc", (12, 84, 84)),
        ((3, 84, 84), "chw", (3, 84, 84)),
        ((4, 84, 96), "chw", (4, 84, 96)),
        ((7, 7, 3), "hwc", (3, 7, 7)),
        ((3, 3, 3), "hwc", (3, 3, 3)),
        ((10, 10, 7), "hwc", (7, 10, 10)),
    ],
)
def test_order(shape: tuple[int, int, int], order: str, read: tuple[int, int, int]) -> None:
    """The order of an image's dimensions is found by the shape."""
    image = image_of("seen", bytes_of(*shape))
    assert image is not None
    assert (image.order, image.shape) == (order, read)


@pytest.mark.parametrize("shape", [(84, 84, 84), (3, 84, 4), (10, 84, 10), (7, 7, 7), (1, 4, 4)])
def test_ambiguous(shape: tuple[int, int, int]) -> None:
    """A shape that shows no order is refused in one line, and read where the order is given."""
    with pytest.raises(ValueError, match=r"^observation 'seen': shape .* set image_order=hwc or chw$"):
        image_of("seen", bytes_of(*shape))
    for order in ("hwc", "chw"):
        image = image_of("seen", bytes_of(*shape), order)
        channels_last = (shape[2], shape[0], shape[1])
        assert image is None or image.shape == (shape if order == "chw" else channels_last)
    assert any(image_of("seen", bytes_of(*shape), order) for order in ("hwc", "chw"))


def test_given_order_wins() -> None:
    """A given order is not doubted."""
    image = image_of("seen", bytes_of(40, 84, 12), "chw")
    assert image is not None
    assert image.shape == (40, 84, 12)
    assert image_of("seen", bytes_of(40, 84, 1), "chw") is None, "one pixel in a row is no image"
    with pytest.raises(ValueError, match=r"^image_order=whc: unknown; must be one of: auto, hwc, chw$"):
        image_of("seen", bytes_of(84, 84, 3), "whc")


@pytest.mark.parametrize(
    ("shape", "dtype", "low", "high", "is_image"),
    [
        ((8, 9), np.uint8, 0, 255, True),
        ((8, 7), np.uint8, 0, 255, False),
        ((84, 84), np.float32, 0, 1, False),
        ((84, 84, 3), np.float32, 0, 1, True),
        ((84, 84, 3), np.float64, 0, 0.5, True),
        ((84, 84, 3), np.float32, -1, 1, False),
        ((84, 84, 3), np.float32, 0, 255, False),
        ((84, 84, 3), np.int64, 0, 10, False),
        ((10, 10, 4), np.bool_, 0, 1, True),
        ((2, 2, 84), np.uint8, 0, 255, False),
        ((2, 2, 2), np.uint8, 0, 255, False),
        ((84,), np.uint8, 0, 255, False),
        ((), np.uint8, 0, 255, False),
        ((4, 84, 84, 3), np.uint8, 0, 255, False),
        ((0, 5, 5), np.uint8, 0, 255, False),
    ],
)
def test_what_is_an_image(shape: tuple[int, ...], dtype: DTypeLike, low: float, high: float, is_image: bool) -> None:
    """Bytes, or numbers from 0 to 1, in three dimensions; bytes alone in two; and not too few of them."""
    box = Box(low, high, shape, dtype)  # type: ignore[arg-type]  # gymnasium names fewer types than it takes
    assert (image_of("seen", box) is not None) == is_image


@pytest.mark.parametrize(
    ("box", "divisor"),
    [
        (bytes_of(84, 84, 3), 255),
        (bytes_of(28, 28), 255),
        (bytes_of(7, 7, 3), 1),
        (bytes_of(25, 25, 3), 1),
        (bytes_of(84, 84, 3, high=10), 1),
        (Box(0, 1, (84, 84, 3), np.float32), 1),
    ],
)
def test_divisor(box: Box, divisor: float) -> None:
    """Pictures of bytes are divided by 255; symbols, small grids and numbers within 0 to 1 are not."""
    image = image_of("seen", box)
    assert isinstance(image, Image)
    assert image.divisor == divisor
