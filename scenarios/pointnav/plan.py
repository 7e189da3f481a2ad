"""Floor plans: rooms on a grid of differing widths, connected by doors, and the walls that this leaves.

Seen from above: x to the right, y up, metres; angles are counter-clockwise from x. Wall lines run through the whole
plan; between two rooms a wall has at most one door, an opening of full height. A random spanning tree of doors connects
all rooms, further doors make loops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Box = tuple[float, float, float, float]
"""x0, x1, y0, y1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSettings:
    """What a generated floor plan looks like; lengths in metres."""

    num_columns: int = 2
    """Rooms along x."""
    num_rows: int = 2
    """Rooms along y."""
    room_min_m: float = 2.5
    """Least distance of neighbouring wall lines."""
    room_max_m: float = 4.0
    """Greatest distance of neighbouring wall lines."""
    door_m: float = 1.0
    """Width of a door."""
    wall_m: float = 0.1
    """Thickness of a wall."""
    loop_fraction: float = 0.3
    """Chance that a wall left closed by the spanning tree gets a door too."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        jamb_m = self.wall_m + 2 * CORNER_M
        rules = (
            ("num_columns", self.num_columns >= 1, "at least 1"),
            ("num_rows", self.num_rows >= 1, "at least 1"),
            ("door_m", self.door_m > 0, "above 0"),
            ("wall_m", self.wall_m > 0, "above 0"),
            ("room_min_m", self.room_min_m >= self.door_m + jamb_m, f"at least door_m + {jamb_m:g}"),
            ("room_max_m", self.room_max_m >= self.room_min_m, "at least room_min_m"),
            ("loop_fraction", 0 <= self.loop_fraction <= 1, "from 0 to 1"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"plan.{name}={getattr(self, name)}: must be {rule}")


CORNER_M = 0.25
"""Least distance of a door from the corner of a room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """An opening in the wall between two rooms."""

    axis: int
    """0: the wall is at a constant x, and the way through goes along x; 1: the wall is at a constant y."""
    column: int
    row: int
    """The room on the lower side of the wall; the other is one column or one row further."""
    centre_m: float
    """Centre of the opening, along the wall."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FloorPlan:
    """Rooms on a grid and the doors between them."""

    settings: PlanSettings
    xs: tuple[float, ...]
    """Centre lines of the walls at constant x, ascending; room (i, j) lies between xs[i] and xs[i + 1]."""
    ys: tuple[float, ...]
    """Centre lines of the walls at constant y, ascending."""
    doors: tuple[Door, ...]

    def walls(self) -> list[Box]:
        """The solid boxes: for each wall line, the stretches between its doors. They overlap where lines cross."""
        half, lines = self.settings.wall_m / 2, (self.xs, self.ys)
        boxes: list[Box] = []
        for axis in (0, 1):
            across, along = lines[axis], lines[1 - axis]
            for index, position in enumerate(across):
                begin = along[0] - half
                for centre in sorted(door.centre_m for door in self.doors if self._line_of(door) == (axis, index)):
                    boxes.append(_box(axis, position, half, begin, centre - self.settings.door_m / 2))
                    begin = centre + self.settings.door_m / 2
                boxes.append(_box(axis, position, half, begin, along[-1] + half))
        return boxes

    @staticmethod
    def _line_of(door: Door) -> tuple[int, int]:
        return door.axis, 1 + (door.column if door.axis == 0 else door.row)


def _box(axis: int, position: float, half: float, begin: float, end: float) -> Box:
    if axis == 0:
        return position - half, position + half, begin, end
    return begin, end, position - half, position + half


def generate_plan(settings: PlanSettings, rng: np.random.Generator) -> FloorPlan:
    """Draws a floor plan. All its rooms are connected.

    Args:
        settings: size of the grid and of its parts.
        rng: the only source of randomness.
    """
    lines = [
        np.concatenate([[0.0], np.cumsum(rng.uniform(settings.room_min_m, settings.room_max_m, size=count))])
        for count in (settings.num_columns, settings.num_rows)
    ]
    margin = CORNER_M + (settings.wall_m + settings.door_m) / 2
    doors = []
    for axis, column, row in _open_walls(settings, rng):
        along = lines[1 - axis]
        room = row if axis == 0 else column
        centre = rng.uniform(along[room] + margin, along[room + 1] - margin)
        doors.append(Door(axis=axis, column=column, row=row, centre_m=float(centre)))
    return FloorPlan(
        settings=settings,
        xs=tuple(lines[0].tolist()),
        ys=tuple(lines[1].tolist()),
        doors=tuple(doors),
    )


def _open_walls(settings: PlanSettings, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """The walls that get a door, as (axis, column, row): a spanning tree by Kruskal's method, and some loops."""
    columns, rows = settings.num_columns, settings.num_rows
    walls = [(0, i, j) for i in range(columns - 1) for j in range(rows)]
    walls += [(1, i, j) for i in range(columns) for j in range(rows - 1)]
    parent = list(range(columns * rows))

    def root(room: int) -> int:
        while parent[room] != room:
            parent[room] = parent[parent[room]]
            room = parent[room]
        return room

    chosen = []
    for index in rng.permutation(len(walls)):
        axis, i, j = walls[index]
        here, there = root(i * rows + j), root((i + 1) * rows + j if axis == 0 else i * rows + j + 1)
        if here != there:
            parent[here] = there
            chosen.append(walls[index])
        elif rng.random() < settings.loop_fraction:
            chosen.append(walls[index])
    return chosen
