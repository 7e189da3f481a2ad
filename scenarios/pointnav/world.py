"""The embedded simulator: an agent in a floor plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rlbench.scenarios.pointnav.depth import DepthCamera
from rlbench.scenarios.pointnav.geodesic import FreeSpace, GeodesicField
from rlbench.scenarios.pointnav.plan import Box, FloorPlan, PlanSettings, generate_plan
from rlbench.scenarios.pointnav.task import FORWARD_M, MOVE_FORWARD, TURN_DEG, TURN_LEFT

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from rlbench.scenarios.pointnav.task import Point

HFOV_DEG = 90.0


class FloorPlanWorld:
    """A `task.Simulator` over generated floor plans. The agent slides along walls.

    Args:
        plan: what the floor plans look like.
        radius_m: radius of the agent.
        resolution: rows and columns of the depth image.
        episodes_per_plan: episodes after which a new plan is drawn; 0 keeps the first.
    """

    def __init__(self, plan: PlanSettings, radius_m: float, resolution: int, episodes_per_plan: int) -> None:
        self._settings = plan
        self._radius_m = radius_m
        self._resolution = resolution
        self._episodes_per_plan = episodes_per_plan
        self._episodes_left = 0
        self._plan: FloorPlan | None = None
        self._cell = 0
        self._point = (0.0, 0.0)
        self._heading = 0.0

    @property
    def plan(self) -> FloorPlan:
        """The floor plan of the present episode."""
        assert self._plan is not None
        return self._plan

    def restart(self) -> None:
        """Forgets its floor plan: the next episode draws one."""
        self._plan = None

    def begin_episode(self, rng: np.random.Generator) -> None:
        """Draws a floor plan when it is time for one."""
        if self._plan is None or (self._episodes_per_plan and not self._episodes_left):
            self.enter(generate_plan(self._settings, rng))
            self._episodes_left = self._episodes_per_plan
        self._episodes_left -= 1

    def enter(self, plan: FloorPlan) -> None:
        """Takes a floor plan for all further episodes, until the next is due."""
        self._plan = plan
        self._space = FreeSpace.of(plan, self._radius_m)
        self._camera = DepthCamera(plan.walls(), self._resolution, HFOV_DEG)

    def sample_point(self, rng: np.random.Generator) -> Point:
        """A point of the free space, uniformly by area."""
        return self._space.sample(rng)

    def distances_to(self, goal: Point) -> Callable[[Point], float]:
        """Exact geodesic distances: see `geodesic`."""
        space, field = self._space, GeodesicField(self._space, (goal[0], goal[1]))

        def distance(point: Point) -> float:
            place = (point[0], point[1])
            return field.distance(place, space.cells_at(place))

        return distance

    def place(self, point: Point, heading: float) -> None:
        """Puts the agent at a point of the free space."""
        self._point, self._heading = (point[0], point[1]), heading
        self._cell = self._space.cells_at(self._point)[0]

    def act(self, action: int) -> bool:
        """Moves or turns; True when a wall was met (the part of the move along the wall is kept)."""
        if action == MOVE_FORWARD:
            dx, dy = FORWARD_M * math.cos(self._heading), FORWARD_M * math.sin(self._heading)
            self._cell, self._point, collided = self._space.slide(self._cell, self._point, dx, dy)
            return collided
        turn = math.radians(TURN_DEG) if action == TURN_LEFT else -math.radians(TURN_DEG)
        self._heading = math.remainder(self._heading + turn, math.tau)
        return False

    def pose(self) -> tuple[Point, float]:
        """Where the agent is, and its heading."""
        return self._point, self._heading

    def depth(self) -> NDArray[np.float32]:
        """The depth image at the present pose."""
        return self._camera.image(*self._point, self._heading)

    def walls(self) -> list[Box]:
        """The walls of the present plan."""
        return self.plan.walls()

    def close(self) -> None:
        """Does nothing: it holds nothing to free."""
