"""Where an agent's centre may be in a floor plan, how it slides along walls, and exact geodesic distances.

Walls are inflated by the agent's radius with square corners (so that the agent keeps `radius` from every wall along x
or along y). What is left is a union of rectangles, the *cells*: one for each room, one for each door. Two cells meet in
a *portal*, the side of a door cell. Every bend of a shortest path is at an end of a portal, a *corner*. Hence

    geodesic(p, goal) = min(|p - goal| if goal is visible from p,  min over corners c visible from p: |p - c| + D(c)),

where D(c) is the distance from c to the goal in the graph of mutually visible corners (Lozano-Perez and Wesley 1979:
shortest paths among polygonal obstacles). Visibility is exact: the field of view is narrowed portal by portal.
Dijkstra's algorithm settles D outwards from the goal, no further than a query needs, so that the cost of a query does
not grow with the plan.
"""

from __future__ import annotations

import bisect
import heapq
import math
from dataclasses import dataclass, field

import numpy as np

from rlbench.scenarios.pointnav.plan import Box, FloorPlan

Point2 = tuple[float, float]
Cone = tuple[float, float, float, float]
"""A field of view: its right and its left edge, as vectors."""
EPSILON_M = 1e-9


@dataclass(frozen=True, slots=True)
class Portal:
    """A way from one cell into another."""

    cell: int
    """Where it leads."""
    axis: int
    """0: it is crossed along x, 1: along y."""
    at: float
    """Its coordinate on that axis."""
    low: float
    high: float
    """Its extent on the other axis."""
    corners: tuple[int, int]
    """Its low and its high end, as indices into `FreeSpace.corners`."""


@dataclass(slots=True)
class FreeSpace:
    """The cells and portals of a floor plan for an agent of a given radius."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    """The plan's wall lines."""
    cells: list[Box] = field(default_factory=list)
    """The rooms, column by column, then the doors."""
    portals: list[list[Portal]] = field(default_factory=list)
    """The portals of each cell."""
    corners: list[Point2] = field(default_factory=list)
    corner_cells: list[tuple[int, int]] = field(default_factory=list)
    """The two cells that meet at each corner."""
    neighbours: list[list[tuple[int, float]] | None] = field(default_factory=list)
    """The corners that each corner sees, with their distances; None until asked for."""
    cumulative_area: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Cumulative areas of the cells, for drawing points."""

    @classmethod
    def of(cls, plan: FloorPlan, radius_m: float) -> FreeSpace:
        """Inflates the walls of a plan. Raises ValueError when the agent does not fit through the doors."""
        settings = plan.settings
        if not 0 < 2 * radius_m < settings.door_m:
            raise ValueError(
                f"radius={radius_m}: must be above 0 and below {settings.door_m / 2}, half of a door's width"
            )
        space, inset, rows = cls(xs=plan.xs, ys=plan.ys), settings.wall_m / 2 + radius_m, len(plan.ys) - 1
        for x0, x1 in zip(plan.xs[:-1], plan.xs[1:], strict=True):
            for y0, y1 in zip(plan.ys[:-1], plan.ys[1:], strict=True):
                space._add_cell((x0 + inset, x1 - inset, y0 + inset, y1 - inset))
        for door in plan.doors:
            half = settings.door_m / 2 - radius_m
            low, high = door.centre_m - half, door.centre_m + half
            here = door.column * rows + door.row
            if door.axis == 0:
                wall = plan.xs[door.column + 1]
                middle = space._add_cell((wall - inset, wall + inset, low, high))
                there = here + rows
            else:
                wall = plan.ys[door.row + 1]
                middle = space._add_cell((low, high, wall - inset, wall + inset))
                there = here + 1
            space._join(here, middle, door.axis, wall - inset, low, high)
            space._join(there, middle, door.axis, wall + inset, low, high)
        space.cumulative_area = np.cumsum([(x1 - x0) * (y1 - y0) for x0, x1, y0, y1 in space.cells])
        space.neighbours = [None] * len(space.corners)
        return space

    def _add_cell(self, box: Box) -> int:
        self.cells.append(box)
        self.portals.append([])
        return len(self.cells) - 1

    def _join(self, room: int, door: int, axis: int, at: float, low: float, high: float) -> None:
        ends = (len(self.corners), len(self.corners) + 1)
        for end in (low, high):
            self.corners.append((at, end) if axis == 0 else (end, at))
            self.corner_cells.append((room, door))
        self.portals[room].append(Portal(door, axis, at, low, high, ends))
        self.portals[door].append(Portal(room, axis, at, low, high, ends))

    def sample(self, rng: np.random.Generator) -> Point2:
        """A point of the free space, uniformly by area."""
        draw = rng.random(3)
        cell = int(np.searchsorted(self.cumulative_area, draw[0] * self.cumulative_area[-1], side="right"))
        x0, x1, y0, y1 = self.cells[min(cell, len(self.cells) - 1)]
        return x0 + float(draw[1]) * (x1 - x0), y0 + float(draw[2]) * (y1 - y0)

    def cells_at(self, point: Point2) -> list[int]:
        """The cells that contain a point, their edges included: a room, a door, or both; [] inside a wall."""
        column = min(max(bisect.bisect_right(self.xs, point[0]) - 1, 0), len(self.xs) - 2)
        row = min(max(bisect.bisect_right(self.ys, point[1]) - 1, 0), len(self.ys) - 2)
        room = column * (len(self.ys) - 1) + row
        near = [room, *(portal.cell for portal in self.portals[room])]
        return [cell for cell in near if self._contains(cell, point)]

    def _contains(self, cell: int, point: Point2) -> bool:
        x0, x1, y0, y1 = self.cells[cell]
        x, y = point
        # an agent that slides along a wall is on an edge, up to rounding
        return x0 - EPSILON_M <= x <= x1 + EPSILON_M and y0 - EPSILON_M <= y <= y1 + EPSILON_M

    def slide(self, cell: int, point: Point2, dx: float, dy: float) -> tuple[int, Point2, bool]:
        """Moves by (dx, dy); at a wall, the part of the move along the wall is kept.

        Returns:
            The cell and the point where the move ends, and whether it met a wall.
        """
        x, y = point
        collided = False
        while dx or dy:
            x0, x1, y0, y1 = self.cells[cell]
            share_x = ((x1 if dx > 0 else x0) - x) / dx if dx else math.inf
            share_y = ((y1 if dy > 0 else y0) - y) / dy if dy else math.inf
            share = min(share_x, share_y)
            if share >= 1:
                return cell, (x + dx, y + dy), collided
            share = max(share, 0.0)
            axis = 0 if share_x <= share_y else 1
            x, y = x + share * dx, y + share * dy
            dx, dy = (1 - share) * dx, (1 - share) * dy
            if axis == 0:
                x = x1 if dx > 0 else x0
            else:
                y = y1 if dy > 0 else y0
            through = self._portal_at(cell, axis, (x, y))
            if through is not None:
                cell = through
                continue
            collided = True
            dx, dy = (0.0, dy) if axis == 0 else (dx, 0.0)
        return cell, (x, y), collided

    def _portal_at(self, cell: int, axis: int, point: Point2) -> int | None:
        across, along = point if axis == 0 else (point[1], point[0])
        for portal in self.portals[cell]:
            if portal.axis == axis and portal.at == across and portal.low <= along <= portal.high:
                return portal.cell
        return None

    def neighbours_of(self, corner: int) -> list[tuple[int, float]]:
        """The corners that a corner sees, with their distances in metres."""
        found = self.neighbours[corner]
        if found is None:
            here = self.corners[corner]
            seen = View(self, here, list(self.corner_cells[corner])).corners
            found = [(other, math.dist(here, self.corners[other])) for other in seen if other != corner]
            self.neighbours[corner] = found
        return found


class View:
    """What is visible from a point: corners, and other points on request."""

    def __init__(self, space: FreeSpace, point: Point2, cells: list[int]) -> None:
        self._space = space
        self._point = point
        self._open = cells
        self._cones: dict[int, list[Cone]] = {}
        self.corners: set[int] = set()
        for cell in cells:
            for portal in space.portals[cell]:
                self.corners.update(portal.corners)
                if portal.cell not in cells:
                    self._look_through(portal, cell, None)

    def _look_through(self, portal: Portal, origin: int, cone: Cone | None) -> None:
        """Follows the field of view through a portal of cell `origin`."""
        px, py = self._point
        a, b = portal.corners
        (ax, ay), (bx, by) = self._space.corners[a], self._space.corners[b]
        ax, ay, bx, by = ax - px, ay - py, bx - px, by - py
        if ax * by - ay * bx < 0:
            ax, ay, bx, by, a, b = bx, by, ax, ay, b, a
        if cone is not None:
            if _within(cone, ax, ay):
                self.corners.add(a)
            if _within(cone, bx, by):
                self.corners.add(b)
            rx, ry, lx, ly = cone
            if rx * ay - ry * ax < 0:
                ax, ay = rx, ry
            if bx * ly - by * lx < 0:
                bx, by = lx, ly
        if ax * by - ay * bx <= EPSILON_M:  # nothing is visible through it, or it is seen edge-on
            return
        cell, narrowed = portal.cell, (ax, ay, bx, by)
        self._cones.setdefault(cell, []).append(narrowed)
        for onward in self._space.portals[cell]:
            if onward.cell != origin:
                self._look_through(onward, cell, narrowed)

    def sees(self, point: Point2, cells: list[int]) -> bool:
        """Whether the straight line to a point (in `cells`) is free."""
        dx, dy = point[0] - self._point[0], point[1] - self._point[1]
        for cell in cells:
            if cell in self._open:
                return True
            if any(_within(cone, dx, dy) for cone in self._cones.get(cell, ())):
                return True
        return False


def _within(cone: Cone, dx: float, dy: float) -> bool:
    rx, ry, lx, ly = cone
    return rx * dy - ry * dx >= -EPSILON_M and dx * ly - dy * lx >= -EPSILON_M


class GeodesicField:
    """Geodesic distances to one goal."""

    def __init__(self, space: FreeSpace, goal: Point2) -> None:
        self._space = space
        self._goal = goal
        self._goal_cells = space.cells_at(goal)
        self._settled: dict[int, float] = {}
        view = View(space, goal, self._goal_cells)
        self._frontier = [(math.dist(goal, space.corners[corner]), corner) for corner in view.corners]
        heapq.heapify(self._frontier)

    def distance(self, point: Point2, cells: list[int]) -> float:
        """Length in metres of the shortest path from a point that lies in `cells`; `inf` without a path."""
        view = View(self._space, point, cells)
        if view.sees(self._goal, self._goal_cells):
            return math.dist(point, self._goal)
        corners = self._space.corners
        waiting, best = {}, math.inf
        for corner in view.corners:
            leg = math.dist(point, corners[corner])
            if corner in self._settled:
                best = min(best, leg + self._settled[corner])
            else:
                waiting[corner] = leg
        while self._frontier and self._frontier[0][0] < best:
            corner, reached = self._settle()
            if corner in waiting:
                best = min(best, reached + waiting[corner])
        return best

    def _settle(self) -> tuple[int, float]:
        reached, corner = heapq.heappop(self._frontier)
        if corner not in self._settled:
            self._settled[corner] = reached
            for other, leg in self._space.neighbours_of(corner):
                if other not in self._settled:
                    heapq.heappush(self._frontier, (reached + leg, other))
        return corner, reached
