"""What there is to see of an episode: the depth image as the agent has it, and where there is a plan, the plan.

Letters: P pixels, the height of a picture.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rlbench.scenarios.pointnav.plan import Box

Point = tuple[float, ...]
"""x and y as seen from above, then whatever else the simulator needs; metres."""
PIXELS = 256
"""P, at least."""
FLOOR, WALL, GOAL, AGENT, NOSE = (255, 255, 255), (90, 90, 90), (0, 140, 60), (30, 90, 220), (220, 60, 30)
GOAL_M, AGENT_M, NOSE_M = 0.2, 0.2, 0.12
"""Radii of what is drawn."""


def of_depth(depth: NDArray[np.float32], farthest_m: float) -> NDArray[np.uint8]:
    """A depth image, [1, H, W], as a picture, [P, P', 3]: the nearer, the brighter."""
    grey = np.rint(255 * (1 - np.clip(depth[0] / farthest_m, 0, 1))).astype(np.uint8)
    factor = max(1, PIXELS // len(grey))
    return np.repeat(grey.repeat(factor, axis=0).repeat(factor, axis=1)[:, :, None], 3, axis=2)


def of_plan(walls: Sequence[Box], goal: Point, agent: Point, heading: float, pixels: int) -> NDArray[np.uint8]:
    """A floor plan from above, y upwards, [pixels, pixels, 3], with the goal, the agent and where it looks."""
    left, bottom = min(x0 for x0, *_ in walls), min(y0 for _, _, y0, _ in walls)
    width_m = max(max(x1 for _, x1, _, _ in walls) - left, max(y1 for *_, y1 in walls) - bottom)
    steps = (np.arange(pixels) + 0.5) * width_m / pixels
    x, y = left + steps[None, :], bottom + steps[::-1, None]
    picture = np.full((pixels, pixels, 3), FLOOR, np.uint8)
    for x0, x1, y0, y1 in walls:
        picture[(x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)] = WALL
    least_m = width_m / pixels  # what is smaller than a pixel would not be seen
    nose = (agent[0] + AGENT_M * math.cos(heading), agent[1] + AGENT_M * math.sin(heading))
    for (at_x, at_y), radius_m, colour in (
        (goal[:2], GOAL_M, GOAL),
        (agent[:2], AGENT_M, AGENT),
        (nose, NOSE_M, NOSE),
    ):
        picture[(x - at_x) ** 2 + (y - at_y) ** 2 <= max(radius_m, least_m) ** 2] = colour
    return picture
