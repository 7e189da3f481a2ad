import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.scenarios.pointnav.task import (
    MOVE_FORWARD,
    STOP,
    TURN_LEFT,
    TURN_RIGHT,
    Point,
    PointNavEnv,
    TaskSettings,
    draw_episode,
    goal_sensor,
    spl,
)


@dataclass
class OpenField:
    """A `Simulator` without walls: the geodesic distance is the straight line. Points come from a list."""

    points: list[Point]

    def __post_init__(self) -> None:
        self.queue = itertools.cycle(self.points)
        self.point, self.heading, self.closed = self.points[0], 0.0, 0
        self.island: Callable[[Point], float] | None = None

    def restart(self) -> None:
        """It has nothing of a seed's."""

    def begin_episode(self, rng: np.random.Generator) -> None:
        del rng

    def sample_point(self, rng: np.random.Generator) -> Point:
        del rng
        return next(self.queue)

    def distances_to(self, goal: Point) -> Callable[[Point], float]:
        return self.island or (lambda point: math.dist(point, goal))

    def place(self, point: Point, heading: float) -> None:
        self.point, self.heading = point, heading

    def act(self, action: int) -> bool:
        if action == MOVE_FORWARD:
            x, y = self.point
            self.point = (x + 0.25 * math.cos(self.heading), y + 0.25 * math.sin(self.heading))
        else:
            self.heading += math.radians(10) * (1 if action == TURN_LEFT else -1)
        return False

    def pose(self) -> tuple[Point, float]:
        return self.point, self.heading

    def depth(self) -> NDArray[np.float32]:
        return np.zeros((1, 8, 8), dtype=np.float32)

    def close(self) -> None:
        self.closed += 1


def started(goal: Point, start: Point, heading: float, max_steps: int = 100) -> PointNavEnv:
    """An environment whose first episode goes from start to goal."""
    field = OpenField([goal, start])
    env = PointNavEnv(field, TaskSettings(max_steps=max_steps), 8, 0)
    env.reset()
    field.place(start, heading)
    return env


def test_spl_is_the_papers_formula() -> None:
    """S l / max(l, p): 1 on the shortest path, l / p on a longer one, 0 without success, never above 1."""
    assert spl(success=True, shortest_m=4.0, travelled_m=4.0) == 1.0
    assert spl(success=True, shortest_m=4.0, travelled_m=8.0) == 0.5
    assert spl(success=True, shortest_m=4.0, travelled_m=3.8) == 1.0
    assert spl(success=False, shortest_m=4.0, travelled_m=4.0) == 0.0


@pytest.mark.parametrize(
    ("heading", "expected"),
    [(0.0, (5, 0.6, 0.8)), (math.pi / 2, (5, 0.8, -0.6)), (math.pi, (5, -0.6, -0.8)), (-math.pi / 2, (5, -0.8, 0.6))],
)
def test_goal_sensor_is_egocentric(heading: float, expected: tuple[float, ...]) -> None:
    """Distance, cosine and sine of the goal's angle, to the left of the heading positive."""
    seen = goal_sensor((1.0, 1.0), heading, (4.0, 5.0))
    assert seen.dtype == np.float32
    assert seen == pytest.approx(expected, abs=1e-6)


def test_goal_sensor_looks_from_above() -> None:
    """Heights, the third coordinate, do not count: GPS+Compass is planar."""
    assert goal_sensor((0, 0, 1.0), 0.0, (3.0, 4.0, 9.0))[0] == pytest.approx(5.0)


def test_turning_left_moves_the_goal_to_the_right() -> None:
    """The sensor's angle follows the agent's turns by 10 degrees, against their sense."""
    env = started(goal=(2.0, 0.0), start=(0.0, 0.0), heading=0.0)
    observation, *_ = env.step(TURN_LEFT)
    assert math.degrees(math.atan2(*observation["goal"][:0:-1])) == pytest.approx(-10, abs=1e-4)
    env.step(TURN_RIGHT)
    observation, *_ = env.step(TURN_RIGHT)
    assert math.degrees(math.atan2(*observation["goal"][:0:-1])) == pytest.approx(10, abs=1e-4)


def test_a_perfect_episode() -> None:
    """Straight to the goal and stop: progress - 0.01 for each step, 2.5 x SPL at the end, success, termination."""
    env = started(goal=(2.0, 0.0), start=(0.0, 0.0), heading=0.0)
    for _ in range(8):
        _, reward, terminated, truncated, info = env.step(MOVE_FORWARD)
        assert reward == pytest.approx(0.25 - 0.01)
        assert not terminated
        assert not truncated
        assert "success" not in info
    _, reward, terminated, truncated, info = env.step(STOP)
    assert reward == pytest.approx(2.5 - 0.01)
    assert (terminated, truncated, info["success"], info["spl"]) == (True, False, 1.0, 1.0)


def test_a_detour_lowers_spl_by_its_length() -> None:
    """Walking 1 m away, and back, on a way of 2 m: SPL = 2 / 4."""
    env = started(goal=(2.0, 0.0), start=(0.0, 0.0), heading=math.pi)
    assert sum(env.step(MOVE_FORWARD)[1] for _ in range(4)) == pytest.approx(4 * (-0.25 - 0.01))
    for _ in range(18):
        env.step(TURN_LEFT)
    for _ in range(12):
        env.step(MOVE_FORWARD)
    *_, info = env.step(STOP)
    assert info["success"] == 1.0
    assert info["spl"] == pytest.approx(0.5)


@pytest.mark.parametrize(("left_m", "success"), [(0.19, 1.0), (0.21, 0.0)])
def test_success_needs_a_stop_within_two_decimetres(left_m: float, success: float) -> None:
    """Stopping within 0.2 m of the goal succeeds, further off fails; a failed stop ends the episode with SPL 0."""
    env = started(goal=(1.0 + left_m, 0.0), start=(0.0, 0.0), heading=0.0)
    for _ in range(4):
        env.step(MOVE_FORWARD)
    _, reward, terminated, _, info = env.step(STOP)
    assert terminated
    assert info["success"] == success
    assert info["spl"] == success
    assert reward == pytest.approx(2.5 * success - 0.01)


def test_the_time_limit_truncates_and_is_no_success() -> None:
    """After max_steps without a stop the episode is truncated, even at the goal; a stop in the last step terminates."""
    env = started(goal=(1.0, 0.0), start=(0.0, 0.0), heading=0.0, max_steps=4)
    for step in range(4):
        _, _, terminated, truncated, info = env.step(MOVE_FORWARD)
        assert (terminated, truncated) == (False, step == 3)
    assert (info["success"], info["spl"]) == (0.0, 0.0)
    env = started(goal=(1.0, 0.0), start=(0.0, 0.0), heading=0.0, max_steps=1)
    _, _, terminated, truncated, _ = env.step(STOP)
    assert (terminated, truncated) == (True, False)


def test_episodes_keep_to_the_distance_limits_and_need_a_path() -> None:
    """Pairs that are too near, too far or without a finite path are passed over."""
    rng, settings = np.random.default_rng(0), TaskSettings(min_distance_m=1.0, max_distance_m=3.0)
    field = OpenField([(0.0, 0.0), (0.5, 0.0), (9.0, 0.0), (2.0, 0.0)])
    assert draw_episode(field, settings, rng).start == (2.0, 0.0)
    field = OpenField([(0.0, 0.0), (1.5, 0.0), (2.5, 0.0)])
    field.island = lambda point: math.inf if point == (1.5, 0.0) else 2.5
    assert draw_episode(field, settings, rng).start == (2.5, 0.0)


def test_a_scene_without_episodes_is_an_error_that_says_so() -> None:
    """When nothing in a scene is far enough apart, drawing ends, with the limits in the message."""
    field = OpenField([(0.0, 0.0), (0.5, 0.0)])
    with pytest.raises(ValueError, match=r"min_distance_m=1, max_distance_m=30: no start and goal"):
        draw_episode(field, TaskSettings(), np.random.default_rng(0))


def test_a_lost_path_gives_a_finite_reward() -> None:
    """Where a navmesh finds no path for a moment, the distance stays as it was: rewards are always finite."""
    env = started(goal=(2.0, 0.0), start=(0.0, 0.0), heading=0.0)
    episode = env.episode
    assert episode is not None
    lost = OpenField([(0.0, 0.0)])
    lost.island = lambda _: math.inf
    object.__setattr__(episode, "distance", lost.distances_to((2.0, 0.0)))
    assert env.step(MOVE_FORWARD)[1] == pytest.approx(-0.01)
    object.__setattr__(episode, "distance", lambda point: math.dist(point, (2.0, 0.0)))
    assert env.step(MOVE_FORWARD)[1] == pytest.approx(0.5 - 0.01)


@pytest.mark.parametrize(("field", "value"), [("max_steps", 0), ("min_distance_m", -1.0), ("max_distance_m", 0.5)])
def test_bad_task_settings_are_refused(field: str, value: float) -> None:
    """A setting out of range is refused with its name and value."""
    with pytest.raises(ValueError, match=rf"^{field}={value}: must be"):
        TaskSettings(**{field: value})  # type: ignore[arg-type]  # the value is wrong on purpose
