"""Shrinks images by area, with numpy alone: simulators render larger images than policies see."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class AreaResize:
    """Shrinks images by area: every output pixel is the mean of the input area that it covers.

    It is separable and computed as a few weighted sums of whole rows. For these sizes that is two to three times as
    fast as two matrix products and, unlike them, starts no BLAS threads in an environment worker.
    """

    def __init__(self, size: tuple[int, int], new_size: tuple[int, int]) -> None:
        """`size` and `new_size` are (height, width) in pixels; no side may grow."""
        self._rows = _area_taps(size[0], new_size[0])
        self._columns = _area_taps(size[1], new_size[1])

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resizes uint8 [..., H, W] to uint8 [..., new H, new W], rounded to the nearest."""
        rows = _weighted_rows(image, self._rows)  # [..., new H, W]
        columns = _weighted_rows(np.ascontiguousarray(rows.swapaxes(-1, -2)), self._columns)  # [..., new W, new H]
        columns += np.float32(0.5)
        return columns.astype(np.uint8).swapaxes(-1, -2)


Taps = list[tuple[NDArray[np.intp], NDArray[np.float32]]]


def _area_taps(size: int, new_size: int) -> Taps:
    """For every k, the k-th input row [new_size] of each output row and its weight [new_size, 1]."""
    assert new_size <= size
    edges = np.linspace(0, size, new_size + 1)
    rows = np.arange(size)
    covered = np.minimum(edges[1:, None], rows + 1) - np.maximum(edges[:-1, None], rows)
    weights = np.clip(covered, 0, None) * (new_size / size)  # [new_size, size]
    used = weights > 1e-9
    num_taps = int(used.sum(axis=1).max())
    first = np.minimum(used.argmax(axis=1), size - num_taps)
    return [(i, weights[range(new_size), i].astype(np.float32)[:, None]) for i in (first + k for k in range(num_taps))]


def _weighted_rows(image: NDArray[Any], taps: Taps) -> NDArray[np.float32]:
    """Sums the weighted rows [..., H, W] of an image."""
    (index, weight), *more = taps
    total: NDArray[np.float32] = np.multiply(image.take(index, -2), weight)
    for index, weight in more:
        total += np.multiply(image.take(index, -2), weight)
    return total
