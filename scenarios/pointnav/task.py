"""The PointGoal navigation task of DD-PPO (section 4), over any simulator: episodes, reward, success, SPL, goal sensor.

`pointnav` and `habitat` share all of this; each gives a `Simulator`, which knows a scene, a pose and a camera.

Points are tuples of metres: x and y as seen from above, then whatever else the simulator needs (a height). A heading
is in radians, counter-clockwise from x as seen from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import gymnasium
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rlbench.scenarios.pointnav.plan import Box

Point = tuple[float, ...]
Observation = dict[str, NDArray[np.float32]]

STOP, MOVE_FORWARD, TURN_LEFT, TURN_RIGHT = range(4)
ACTIONS = ("stop", "move_forward", "turn_left", "turn_right")
FORWARD_M = 0.25
TURN_DEG = 10.0
SUCCESS_M = 0.2
SLACK_REWARD = -0.01
SPL_REWARD = 2.5
MAX_DEPTH_M = 10.0
STARTS_PER_GOAL = 100
GOALS_PER_SCENE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSettings:
    """Which episodes are drawn, and how long they may last."""

    max_steps: int = 500
    """Time limit in env steps; an episode that reaches it is truncated."""
    min_distance_m: float = 1.0
    """Least geodesic distance from start to goal."""
    max_distance_m: float = 30.0
    """Greatest geodesic distance from start to goal."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        rules = (
            ("max_steps", self.max_steps >= 1, "at least 1"),
            ("min_distance_m", self.min_distance_m >= 0, "at least 0"),
            (
                "max_distance_m",
                self.max_distance_m > self.min_distance_m,
                f"above min_distance_m={self.min_distance_m:g}",
            ),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{name}={getattr(self, name)}: must be {rule}")


class Simulator(Protocol):
    """A scene with an agent in it."""

    def restart(self) -> None:
        """Called when a seed begins the random stream again: forgets what the scene owes to the old one."""

    def begin_episode(self, rng: np.random.Generator) -> None:
        """Called before an episode is drawn: the place to change the scene and to seed what has a seed of its own."""

    def sample_point(self, rng: np.random.Generator) -> Point:
        """A point where the agent can stand."""

    def distances_to(self, goal: Point) -> Callable[[Point], float]:
        """Geodesic distances to a goal, in metres: `inf` where there is no path."""

    def place(self, point: Point, heading: float) -> None:
        """Puts the agent somewhere."""

    def act(self, action: int) -> bool:
        """Applies MOVE_FORWARD, TURN_LEFT or TURN_RIGHT; returns whether the agent met an obstacle."""

    def pose(self) -> tuple[Point, float]:
        """Where the agent is, and its heading."""

    def depth(self) -> NDArray[np.float32]:
        """The depth image at the present pose: [1, H, W], metres, a new array."""

    def close(self) -> None:
        """Frees what the simulator holds; a second call does nothing."""


@runtime_checkable
class HasWalls(Protocol):
    """What a simulator may have whose scene can be drawn from above."""

    def walls(self) -> Sequence[Box]:
        """The solid boxes of the scene of the present episode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """One start and one goal."""

    start: Point
    heading: float
    goal: Point
    distance: Callable[[Point], float]
    """Geodesic distance to the goal, metres."""
    start_distance_m: float
    """The length of the shortest path from start to goal."""


def draw_episode(simulator: Simulator, settings: TaskSettings, rng: np.random.Generator) -> Episode:
    """Draws start, goal and heading uniformly among those whose geodesic distance is within the limits.

    Raises ValueError when the scene seems to have no such pair.
    """
    for _ in range(GOALS_PER_SCENE):
        goal = simulator.sample_point(rng)
        distance = simulator.distances_to(goal)
        for _ in range(STARTS_PER_GOAL):
            start = simulator.sample_point(rng)
            if math.dist(start, goal) > settings.max_distance_m:  # no path is shorter than the straight line
                continue
            length = distance(start)
            if math.isfinite(length) and settings.min_distance_m <= length <= settings.max_distance_m:
                heading = float(rng.uniform(-math.pi, math.pi))
                return Episode(start=start, heading=heading, goal=goal, distance=distance, start_distance_m=length)
    raise ValueError(
        f"min_distance_m={settings.min_distance_m:g}, max_distance_m={settings.max_distance_m:g}: "
        f"no start and goal of a scene are so far apart; widen the limits or leave out the scene"
    )


def spl(*, success: bool, shortest_m: float, travelled_m: float) -> float:
    """Success weighted by path length, S l / max(l, p) (Anderson et al. 2018, as in DD-PPO section 4)."""
    return shortest_m / max(shortest_m, travelled_m) if success else 0.0


def goal_sensor(point: Point, heading: float, goal: Point) -> NDArray[np.float32]:
    """The goal as the agent sees it: float32 [distance in metres, cos, sin] of the angle to the left of the heading.

    Distance and angle are those of the view from above (GPS+Compass; DD-PPO section 4 and appendix C).
    """
    dx, dy = goal[0] - point[0], goal[1] - point[1]
    angle = math.atan2(dy, dx) - heading
    return np.array([math.hypot(dx, dy), math.cos(angle), math.sin(angle)], dtype=np.float32)


def observation_space(resolution: int) -> gymnasium.spaces.Dict:
    """`depth`: float32 [1, resolution, resolution], 0 to 10 m; `goal`: float32 [3], see `goal_sensor`."""
    return gymnasium.spaces.Dict(
        {
            "depth": gymnasium.spaces.Box(0.0, MAX_DEPTH_M, (1, resolution, resolution), np.float32),
            "goal": gymnasium.spaces.Box(
                np.array([0, -1, -1], dtype=np.float32), np.array([np.inf, 1, 1], dtype=np.float32), dtype=np.float32
            ),
        }
    )


def action_space() -> gymnasium.spaces.Discrete:
    """One of `ACTIONS`."""
    return gymnasium.spaces.Discrete(len(ACTIONS))


class PointNavEnv(gymnasium.Env[Observation, int]):
    """PointGoal navigation as a gymnasium environment.

    Reward: minus the change of the geodesic distance, minus 0.01, and 2.5 SPL when the agent stops within 0.2 m
    (geodesic) of the goal. `stop` terminates; the time limit truncates. `info` has `collided`, `distance_to_goal`
    (geodesic, metres), and at the end of an episode `success` (0 or 1) and `spl`.
    """

    def __init__(self, simulator: Simulator, settings: TaskSettings, resolution: int, seed: int) -> None:
        self.observation_space = cast("gymnasium.Space[Observation]", observation_space(resolution))
        self.action_space = cast("gymnasium.Space[int]", action_space())
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        self.simulator = simulator
        self.episode: Episode | None = None
        self._settings = settings
        self._num_steps = 0
        self._point: Point = ()
        self._distance_m = math.inf
        self._travelled_m = 0.0
        super().reset(seed=seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode; `seed` restarts the environment's random stream."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.simulator.restart()
        self.simulator.begin_episode(self.np_random)
        self.episode = draw_episode(self.simulator, self._settings, self.np_random)
        self.simulator.place(self.episode.start, self.episode.heading)
        self._num_steps, self._travelled_m = 0, 0.0
        self._point, self._distance_m = self.episode.start, self.episode.start_distance_m
        return self._observe(), {"collided": False, "distance_to_goal": self._distance_m}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Applies one of `ACTIONS`."""
        assert self.episode is not None, "reset() comes before step()"
        stopped = action == STOP
        collided = False if stopped else self.simulator.act(action)
        reward = SLACK_REWARD - self._advance()
        self._num_steps += 1
        truncated = not stopped and self._num_steps >= self._settings.max_steps
        info: dict[str, Any] = {"collided": collided, "distance_to_goal": self._distance_m}
        if stopped or truncated:
            success = stopped and self._distance_m <= SUCCESS_M
            info["success"] = float(success)
            info["spl"] = spl(success=success, shortest_m=self.episode.start_distance_m, travelled_m=self._travelled_m)
            reward += SPL_REWARD * info["spl"]
        return self._observe(), reward, stopped, truncated, info

    def _advance(self) -> float:
        """Notes where the agent is now; returns the change of the geodesic distance, metres."""
        assert self.episode is not None
        point, _ = self.simulator.pose()
        if point == self._point:
            return 0.0
        before = self._distance_m
        distance_m = self.episode.distance(point)
        if math.isfinite(distance_m):  # a navmesh may fail to find a path from its very edge: no change until it does
            self._distance_m = distance_m
        self._travelled_m += math.dist(self._point, point)
        self._point = point
        return self._distance_m - before

    def _observe(self) -> Observation:
        assert self.episode is not None
        point, heading = self.simulator.pose()
        return {"depth": self.simulator.depth(), "goal": goal_sensor(point, heading, self.episode.goal)}

    def render(self) -> NDArray[np.uint8]:
        """The depth image, and beside it the plan where the simulator has one, [H, W, 3]; see `pointnav.picture`."""
        from rlbench.scenarios.pointnav.picture import of_depth, of_plan

        assert self.episode is not None, "reset() comes before render()"
        picture = of_depth(self.simulator.depth(), MAX_DEPTH_M)
        if not isinstance(self.simulator, HasWalls):
            return picture
        point, heading = self.simulator.pose()
        plan = of_plan(self.simulator.walls(), self.episode.goal, point, heading, len(picture))
        return np.hstack([picture, plan])

    def close(self) -> None:
        """Closes the simulator."""
        self.simulator.close()
