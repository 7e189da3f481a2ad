import numpy as np
import pytest

from rlbench.scenarios.pointnav.geodesic import FreeSpace
from rlbench.scenarios.pointnav.plan import CORNER_M, PlanSettings, generate_plan


def connected_rooms(settings: PlanSettings, seed: int) -> int:
    """Rooms that can be reached from room 0 through the doors."""
    plan = generate_plan(settings, np.random.default_rng(seed))
    rows = settings.num_rows
    edges = [
        (door.column * rows + door.row, door.column * rows + door.row + (rows if door.axis == 0 else 1))
        for door in plan.doors
    ]
    reached, grows = {0}, True
    while grows:
        new = {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
        grows = not new <= reached
        reached |= new
    return len(reached)


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (2, 2), (1, 7), (9, 4)])
def test_all_rooms_are_connected(columns: int, rows: int) -> None:
    """Whatever the seed, every room can be reached."""
    settings = PlanSettings(num_columns=columns, num_rows=rows, loop_fraction=0.0)
    assert {connected_rooms(settings, seed) for seed in range(20)} == {columns * rows}


def test_a_tree_has_one_door_less_than_rooms_and_loops_add_the_rest() -> None:
    """loop_fraction 0 gives a spanning tree of doors, 1 a door in every wall between rooms."""
    rng = np.random.default_rng(0)
    tree = generate_plan(PlanSettings(num_columns=5, num_rows=4, loop_fraction=0.0), rng)
    full = generate_plan(PlanSettings(num_columns=5, num_rows=4, loop_fraction=1.0), rng)
    assert len(tree.doors) == 5 * 4 - 1
    assert len(full.doors) == 4 * 4 + 5 * 3
    assert (len(tree.xs), len(tree.ys)) == (5 + 1, 4 + 1)


def test_lengths_keep_to_the_settings() -> None:
    """Rooms are within their limits and doors keep off the corners of both rooms."""
    settings = PlanSettings(num_columns=6, num_rows=6)
    plan = generate_plan(settings, np.random.default_rng(3))
    for lines in (plan.xs, plan.ys):
        sizes = np.diff(lines)
        assert (sizes >= settings.room_min_m).all()
        assert (sizes <= settings.room_max_m).all()
    for door in plan.doors:
        along, room = (plan.ys, door.row) if door.axis == 0 else (plan.xs, door.column)
        margin = settings.wall_m / 2 + CORNER_M + settings.door_m / 2
        assert along[room] + margin <= door.centre_m <= along[room + 1] - margin


def test_same_seed_same_plan() -> None:
    """A plan is a function of its settings and the generator's seed; other seeds give other plans."""
    settings = PlanSettings()
    plans = [generate_plan(settings, np.random.default_rng(seed)) for seed in (5, 5, 6)]
    assert plans[0] == plans[1]
    assert plans[0] != plans[2]


def test_walls_and_free_space_leave_nothing_but_the_agents_margin() -> None:
    """Where the agent's centre may be, no wall is nearer than its radius along both axes; elsewhere inside, one is."""
    plan, radius = generate_plan(PlanSettings(num_columns=3, num_rows=2), np.random.default_rng(1)), 0.15
    space, walls = FreeSpace.of(plan, radius), np.array(plan.walls())
    rng = np.random.default_rng(2)
    points = rng.uniform((0, 0), (plan.xs[-1], plan.ys[-1]), size=(4000, 2))
    for x, y in points:
        hit_x = (walls[:, 0] - radius < x) & (x < walls[:, 1] + radius)
        hit_y = (walls[:, 2] - radius < y) & (y < walls[:, 3] + radius)
        assert bool(space.cells_at((x, y))) == (not (hit_x & hit_y).any())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_columns", 0),
        ("num_rows", 0),
        ("door_m", 0.0),
        ("wall_m", 0.0),
        ("room_min_m", 1.0),
        ("loop_fraction", 1.1),
    ],
)
def test_bad_settings_name_the_field_and_the_value(field: str, value: float) -> None:
    """A setting out of range is refused with its name, value and rule."""
    with pytest.raises(ValueError, match=rf"plan\.{field}={value}: must be"):
        PlanSettings(**{field: value})  # type: ignore[arg-type]  # the value is wrong on purpose


def test_an_agent_too_wide_for_the_doors_is_refused() -> None:
    """A radius of half a door or more cannot leave a room."""
    plan = generate_plan(PlanSettings(), np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"radius=0\.5: must be above 0 and below 0\.5"):
        FreeSpace.of(plan, 0.5)
