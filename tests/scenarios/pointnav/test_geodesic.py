import heapq
import math

import numpy as np
import pytest

from rlbench.scenarios.pointnav.geodesic import FreeSpace, GeodesicField, Point2
from rlbench.scenarios.pointnav.plan import Door, FloorPlan, PlanSettings, generate_plan

RADIUS = 0.15


def two_rooms() -> FreeSpace:
    """Two rooms of 4 m x 4 m, a door in the middle; its cell is 3.8..4.2 x 1.65..2.35."""
    door = Door(axis=0, column=0, row=0, centre_m=2.0)
    plan = FloorPlan(settings=PlanSettings(num_columns=2, num_rows=1), xs=(0.0, 4.0, 8.0), ys=(0.0, 4.0), doors=(door,))
    return FreeSpace.of(plan, RADIUS)


def geodesic(space: FreeSpace, start: Point2, goal: Point2) -> float:
    """The distance under test."""
    return GeodesicField(space, goal).distance(start, space.cells_at(start))


@pytest.mark.parametrize(
    ("start", "goal", "expected"),
    [
        ((1.0, 1.0), (3.0, 2.0), math.sqrt(5)),  # within a room
        ((1.0, 2.0), (7.0, 2.0), 6.0),  # straight through the door
        ((1.0, 1.5), (7.0, 2.5), math.hypot(6, 1)),  # slantwise through the door, touching nothing
        ((2.0, 3.5), (6.0, 3.5), 2 * math.hypot(1.8, 1.15) + 0.4),  # around both upper jambs
        ((3.5, 3.5), (4.5, 0.5), 2 * math.hypot(0.3, 1.15) + math.hypot(0.4, 0.7)),  # crossing from jamb to jamb
        ((3.8, 0.5), (4.2, 0.5), 2 * 1.15 + 0.4),  # along the wall, around, and back
        ((4.0, 2.0), (7.0, 2.0), 3.0),  # from within the door
        ((2.0, 2.0), (2.0, 2.0), 0.0),
    ],
)
def test_geodesic_equals_hand_computed(start: Point2, goal: Point2, expected: float) -> None:
    """The distance between two rooms is what geometry says, in both directions."""
    space = two_rooms()
    assert geodesic(space, start, goal) == pytest.approx(expected, abs=1e-12)
    assert geodesic(space, goal, start) == pytest.approx(expected, abs=1e-12)


def grid_distances(space: FreeSpace, goal: Point2, step: float) -> dict[tuple[int, int], float]:
    """Dijkstra over a fine 8-connected grid of free points around the goal."""
    free: dict[tuple[int, int], bool] = {}

    def is_free(node: tuple[int, int]) -> bool:
        if node not in free:
            free[node] = bool(space.cells_at((goal[0] + step * node[0], goal[1] + step * node[1])))
        return free[node]

    done: dict[tuple[int, int], float] = {}
    heap = [(0.0, (0, 0))]
    while heap:
        reached, node = heapq.heappop(heap)
        if node in done:
            continue
        done[node] = reached
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
            other = (node[0] + dx, node[1] + dy)
            cut = not (is_free((other[0], node[1])) and is_free((node[0], other[1])))  # over the corner of a wall
            if other not in done and is_free(other) and not cut:
                heapq.heappush(heap, (reached + step * math.hypot(dx, dy), other))
    return done


@pytest.mark.parametrize(("side", "seed"), [(2, 0), (3, 1), (3, 2)])
def test_geodesic_agrees_with_a_fine_grid(side: int, seed: int) -> None:
    """No grid path is shorter; none is longer than an 8-connected grid's 8.24 % and a step at each bend allow."""
    rng = np.random.default_rng(seed)
    space = FreeSpace.of(generate_plan(PlanSettings(num_columns=side, num_rows=side), rng), RADIUS)
    goal, step = space.sample(rng), 0.05
    field, grid = GeodesicField(space, goal), grid_distances(space, goal, step)
    nodes = list(grid)
    for index in rng.choice(len(nodes), size=150):
        node = nodes[index]
        point = (goal[0] + step * node[0], goal[1] + step * node[1])
        exact = field.distance(point, space.cells_at(point))
        assert exact <= grid[node] + 1e-9
        assert grid[node] <= exact / math.cos(math.pi / 8) + 8 * step


def sampled_free(space: FreeSpace, a: Point2, b: Point2) -> bool:
    """Whether a straight line is free, by looking at every centimetre of it."""
    shares = np.linspace(0, 1, max(2, math.ceil(math.dist(a, b) / 0.01)))[:, None]
    points = np.array(a) * (1 - shares) + np.array(b) * shares
    cells = np.array(space.cells)
    x, y, slack = points[:, :1], points[:, 1:], 1e-7
    inside = (
        (x > cells[:, 0] - slack) & (x < cells[:, 1] + slack) & (y > cells[:, 2] - slack) & (y < cells[:, 3] + slack)
    )
    return bool(inside.any(axis=1).all())


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_geodesic_equals_a_brute_force_visibility_graph(seed: int) -> None:
    """All corners and points, joined wherever a sampled line is free, give the same shortest paths."""
    rng = np.random.default_rng(seed)
    space = FreeSpace.of(generate_plan(PlanSettings(num_columns=3, num_rows=2), rng), RADIUS)
    points = [space.sample(rng) for _ in range(12)]
    nodes = [*points, *space.corners]
    lengths = np.full((len(nodes), len(nodes)), np.inf)
    for i, a in enumerate(nodes):
        for j in range(i):
            if sampled_free(space, a, nodes[j]):
                lengths[i, j] = lengths[j, i] = math.dist(a, nodes[j])
    np.fill_diagonal(lengths, 0)
    for k in range(len(nodes)):  # Floyd and Warshall
        lengths = np.minimum(lengths, lengths[:, k : k + 1] + lengths[k : k + 1])
    for i, start in enumerate(points):
        for j, goal in enumerate(points):
            # a line that cuts a corner by less than the samples' distance passes as free there, so it may be shorter
            assert geodesic(space, start, goal) == pytest.approx(lengths[i, j], abs=2e-3)


def test_distance_changes_no_faster_than_one_walks() -> None:
    """Along a random walk with slides, |change of geodesic distance| <= metres walked: it is continuous everywhere."""
    rng = np.random.default_rng(4)
    space = FreeSpace.of(generate_plan(PlanSettings(num_columns=4, num_rows=4), rng), RADIUS)
    field, point = GeodesicField(space, space.sample(rng)), space.sample(rng)
    cell = space.cells_at(point)[0]
    before, heading = field.distance(point, space.cells_at(point)), 0.0
    for _ in range(3000):
        heading += rng.normal(0, 0.3)
        cell, after, _ = space.slide(cell, point, 0.25 * math.cos(heading), 0.25 * math.sin(heading))
        cells = space.cells_at(after)
        assert cell in cells
        now = field.distance(after, cells)
        assert abs(now - before) <= math.dist(point, after) + 1e-9
        point, before = after, now


@pytest.mark.parametrize(
    ("start", "move", "end", "collided"),
    [
        ((1.0, 1.0), (0.25, 0.0), (1.25, 1.0), False),
        ((3.7, 0.5), (0.25, 0.0), (3.8, 0.5), True),  # head-on: stops at the wall
        ((3.7, 0.5), (0.2, 0.15), (3.8, 0.65), True),  # slantwise: the part along the wall is kept
        ((3.7, 2.0), (0.25, 0.0), (3.95, 2.0), False),  # into the door
        ((4.1, 2.0), (0.25, 0.1), (4.35, 2.1), False),  # out of the door
        ((4.0, 2.3), (0.1, 0.2), (4.1, 2.35), True),  # along a jamb
        ((0.3, 0.3), (-0.25, -0.25), (0.2, 0.2), True),  # into a corner
        ((3.8, 1.6), (0.01, 0.2), (3.8, 1.8), True),  # along a wall past the edge of the door
    ],
)
def test_slide_equals_hand_computed(start: Point2, move: Point2, end: Point2, collided: bool) -> None:
    """A move ends where it should, and says whether a wall was met."""
    space = two_rooms()
    _, got, met = space.slide(space.cells_at(start)[0], start, *move)
    assert got == pytest.approx(end, abs=1e-12)
    assert met == collided


def test_points_are_drawn_evenly_by_area() -> None:
    """The share of points in a half of the plan is that half's share of the free area."""
    space, rng = two_rooms(), np.random.default_rng(0)
    points = np.array([space.sample(rng) for _ in range(4000)])
    assert np.mean(points[:, 0] < 4.0) == pytest.approx(0.5, abs=0.03)
    assert all(space.cells_at((x, y)) for x, y in points)
