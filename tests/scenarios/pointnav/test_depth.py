import math

import numpy as np
import pytest

from rlbench.scenarios.pointnav.depth import CAMERA_HEIGHT_M, DepthCamera
from rlbench.scenarios.pointnav.geodesic import FreeSpace
from rlbench.scenarios.pointnav.plan import Door, FloorPlan, PlanSettings, generate_plan

TWO_ROOMS = FloorPlan(
    settings=PlanSettings(num_columns=2, num_rows=1),
    xs=(0.0, 4.0, 8.0),
    ys=(0.0, 4.0),
    doors=(Door(axis=0, column=0, row=0, centre_m=2.0),),
)


def test_a_wall_seen_head_on_has_one_planar_depth() -> None:
    """A wall across the view is equally deep in all columns that it fills: its distance along the viewing direction."""
    columns = DepthCamera(TWO_ROOMS.walls(), 64, 90).columns(3.0, 2.0, math.pi / 2)
    ahead = columns[:42]  # up to the room's corner at the right
    assert ahead == pytest.approx(np.full(42, 4.0 - 0.05 - 2.0), abs=1e-5)


def test_a_door_opens_the_view_into_the_next_room() -> None:
    """In front of a door the middle columns see the far wall of the next room, the outer ones the near wall."""
    columns = DepthCamera(TWO_ROOMS.walls(), 64, 90).columns(1.0, 2.0, 0.0)
    assert columns[32] == pytest.approx(8.0 - 0.05 - 1.0, abs=1e-5)
    assert columns[24] == pytest.approx(4.0 - 0.05 - 1.0, abs=1e-5)
    assert columns[40] == pytest.approx(4.0 - 0.05 - 1.0, abs=1e-5)


def test_left_is_left() -> None:
    """With a near wall to the left of the view, the left columns are nearer."""
    columns = DepthCamera(TWO_ROOMS.walls(), 64, 90).columns(1.0, 3.7, 0.0)
    assert columns[0] < 0.5 < columns[-1]


def test_columns_agree_with_marching_along_the_rays() -> None:
    """Each column's depth is where a ray, followed in steps of 2 mm, first is inside a wall."""
    rng = np.random.default_rng(0)
    plan = generate_plan(PlanSettings(num_columns=3, num_rows=3), rng)
    space, walls = FreeSpace.of(plan, 0.15), np.array(plan.walls())
    camera, tangents = DepthCamera(plan.walls(), 16, 90), (2 * np.arange(16) + 1) / 16 - 1
    depths = np.arange(0.0, 12.0, 0.002)
    for _ in range(12):
        (x, y), heading = space.sample(rng), rng.uniform(-math.pi, math.pi)
        columns = camera.columns(x, y, heading)
        for column, tangent in enumerate(tangents):
            px = x + depths * (math.cos(heading) + tangent * math.sin(heading))
            py = y + depths * (math.sin(heading) - tangent * math.cos(heading))
            inside = np.zeros(len(depths), dtype=bool)
            for x0, x1, y0, y1 in walls:
                inside |= (px >= x0) & (px <= x1) & (py >= y0) & (py <= y1)
            first = depths[np.argmax(inside)] if inside.any() else math.inf
            if first < 12:
                assert columns[column] == pytest.approx(first, abs=0.003)


def test_floor_and_ceiling_limit_the_rows() -> None:
    """A row below the horizon is no deeper than the floor there, the image is symmetric, all is within 0 to 10 m."""
    image = DepthCamera(TWO_ROOMS.walls(), 64, 90).image(1.0, 2.0, 0.0)
    assert image.shape == (1, 64, 64)
    assert image.dtype == np.float32
    lowest = CAMERA_HEIGHT_M / (63 / 64)
    assert image[0, 63] == pytest.approx(np.full(64, lowest), abs=1e-5)
    assert image[0, 31, 32] == pytest.approx(6.95, abs=1e-5)  # the far wall, at the horizon
    assert (image == image[:, ::-1]).all()
    assert 0 < image.min() <= image.max() <= 10


@pytest.mark.parametrize("heading", [0.0, math.pi / 2, math.pi, -math.pi / 2, math.pi / 4])
def test_rays_along_the_axes_are_finite(heading: float) -> None:
    """Rays parallel to walls, and level with their ends, give finite depths and no warning."""
    columns = DepthCamera(TWO_ROOMS.walls(), 65, 90).columns(2.0, 1.5, heading)
    assert np.isfinite(columns).all()
