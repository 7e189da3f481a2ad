"""An egocentric depth camera by ray casting: one ray for each image column, against every wall.

Walls are upright and the floor and ceiling are level, so with planar depth (distance along the viewing direction, as
simulators give it) a wall's depth depends on the image column alone, and the floor's and ceiling's on the row alone.
No wall is culled: the time of an image grows with the floor plan, as it does in a renderer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rlbench.scenarios.pointnav.task import MAX_DEPTH_M

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rlbench.scenarios.pointnav.plan import Box

CAMERA_HEIGHT_M = 1.25
CEILING_M = 2 * CAMERA_HEIGHT_M


class DepthCamera:
    """A pinhole camera with square pixels, level, at `CAMERA_HEIGHT_M`."""

    def __init__(self, walls: list[Box], resolution: int, hfov_deg: float) -> None:
        half_width = math.tan(math.radians(hfov_deg) / 2)
        centres = (2 * np.arange(resolution) + 1) / resolution - 1
        self._tangents = (centres * half_width).astype(np.float32)  # [W], positive to the right
        vertical = CAMERA_HEIGHT_M / np.maximum(np.abs(centres) * half_width, 1e-6)  # floor and ceiling are equally far
        self._row_depth = np.minimum(vertical, MAX_DEPTH_M).astype(np.float32)[:, None]  # [H, 1]
        box = np.asarray(walls, dtype=np.float64).T.reshape(2, 2, len(walls), 1)  # [x or y, low or high, walls, 1]
        self._bounds = np.ascontiguousarray(box.astype(np.float32))
        self._hits = np.empty((2, 2, len(walls), resolution), dtype=np.float32)
        self._near = np.empty((2, len(walls), resolution), dtype=np.float32)
        self._far = np.empty_like(self._near)
        self._miss = np.empty((len(walls), resolution), dtype=bool)
        self._behind = np.empty_like(self._miss)

    def columns(self, x: float, y: float, heading: float) -> NDArray[np.float32]:
        """Planar depth of the nearest wall in each column: [W], metres; `inf` where there is none.

        The slab method (Kay and Kajiya 1986): a ray is inside a box between its last entry and its first exit.
        """
        cos, sin = np.float32(math.cos(heading)), np.float32(math.sin(heading))
        rays = np.empty((2, 1, self._tangents.size), dtype=np.float32)
        rays[0, 0] = cos + self._tangents * sin
        rays[1, 0] = sin - self._tangents * cos
        rays[np.abs(rays) < 1e-9] = 1e-9
        origin = np.array([x, y], dtype=np.float32).reshape(2, 1, 1, 1)
        np.multiply(self._bounds - origin, (1 / rays)[:, None], out=self._hits)
        np.minimum(self._hits[:, 0], self._hits[:, 1], out=self._near)
        np.maximum(self._hits[:, 0], self._hits[:, 1], out=self._far)
        entry = np.maximum(self._near[0], self._near[1], out=self._near[0])  # [walls, W]
        leaving = np.minimum(self._far[0], self._far[1], out=self._far[0])
        np.less(leaving, entry, out=self._miss)
        np.less(entry, 0, out=self._behind)
        np.logical_or(self._miss, self._behind, out=self._miss)
        np.copyto(entry, np.float32(np.inf), where=self._miss)
        nearest: NDArray[np.float32] = entry.min(axis=0)
        return nearest

    def image(self, x: float, y: float, heading: float) -> NDArray[np.float32]:
        """The depth image from a point of the free space: float32 [1, H, W], metres, at most `MAX_DEPTH_M`.

        Args:
            x: metres.
            y: metres.
            heading: the viewing direction, radians.
        """
        depth: NDArray[np.float32] = np.minimum(self.columns(x, y, heading)[None, :], self._row_depth)[None]
        return depth
