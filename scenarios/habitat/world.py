"""habitat-sim as a `task.Simulator`. All calls of habitat-sim are in this file.

habitat-sim's y is up and an agent at rest looks along -z: the task's (x, y, height) is habitat's (x, height, -y).
Turning left is counter-clockwise in both.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.scenarios.pointnav.depth import CAMERA_HEIGHT_M
from rlbench.scenarios.pointnav.task import (
    ACTIONS,
    FORWARD_M,
    MAX_DEPTH_M,
    MOVE_FORWARD,
    TURN_DEG,
    TURN_LEFT,
    TURN_RIGHT,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from rlbench.scenarios.pointnav.task import Point

POINT_TRIES = 100


def gpu_device_id(torch_name: str) -> int:
    """The GPU that habitat-sim renders on; -1 means 'without CUDA' there."""
    kind, _, index = torch_name.partition(":")
    return int(index or 0) if kind == "cuda" else -1


class HabitatWorld:
    """One scene. The agent is habitat-sim's default one (radius 0.1 m, height 1.5 m); it slides along obstacles.

    Args:
        scene: a .glb file.
        torch_name: the rank's device, `cpu` or `cuda:k`.
        resolution: rows and columns of the depth image.
    """

    def __init__(self, scene: Path, torch_name: str, resolution: int) -> None:
        os.environ.setdefault("HABITAT_SIM_LOG", "quiet")
        os.environ.setdefault("MAGNUM_LOG", "quiet")
        import habitat_sim

        self._habitat_sim = habitat_sim
        backend = habitat_sim.SimulatorConfiguration()
        backend.scene_id = str(scene)
        backend.enable_physics = False
        backend.gpu_device_id = gpu_device_id(torch_name)
        depth = habitat_sim.CameraSensorSpec()  # its field of view is 90 degrees unless told otherwise
        depth.uuid = "depth"
        depth.sensor_type = habitat_sim.SensorType.DEPTH
        depth.resolution = [resolution, resolution]
        depth.position = np.array([0.0, CAMERA_HEIGHT_M, 0.0], dtype=np.float32)
        agent = habitat_sim.agent.AgentConfiguration()
        agent.sensor_specifications = [depth]
        agent.action_space = {
            ACTIONS[action]: habitat_sim.agent.ActionSpec(
                ACTIONS[action], habitat_sim.agent.ActuationSpec(amount=amount)
            )
            for action, amount in ((MOVE_FORWARD, FORWARD_M), (TURN_LEFT, TURN_DEG), (TURN_RIGHT, TURN_DEG))
        }
        self._sim: Any = habitat_sim.Simulator(habitat_sim.Configuration(backend, [agent]))
        try:
            self._island = self._largest_island(scene)
        except BaseException:
            self.close()
            raise
        self._depth: Any = None

    def _largest_island(self, scene: Path) -> int:
        """Makes sure there is a navmesh; returns its largest island. The tops of walls are islands too."""
        pathfinder = self._sim.pathfinder
        if not pathfinder.is_loaded:  # newer versions load or compute one for the agent by themselves
            settings = self._habitat_sim.NavMeshSettings()
            settings.set_defaults()
            self._sim.recompute_navmesh(pathfinder, settings)
        if not pathfinder.is_loaded or not pathfinder.num_islands:
            raise ValueError(f"{scene}: habitat-sim finds no floor to walk on in it; leave it out of habitat.scenes")
        return max(range(pathfinder.num_islands), key=pathfinder.island_area)

    def restart(self) -> None:
        """Does nothing: its scene stays, and every episode seeds habitat-sim anew."""

    def begin_episode(self, rng: np.random.Generator) -> None:
        """Seeds habitat-sim, whose points are drawn by a generator of its own."""
        self._sim.seed(int(rng.integers(2**31)))

    def sample_point(self, rng: np.random.Generator) -> Point:  # noqa: ARG002  the simulator draws it, see begin_episode
        """A point of the largest island."""
        for _ in range(POINT_TRIES):
            point = _from_habitat(self._sim.pathfinder.get_random_navigable_point(island_index=self._island))
            if all(map(math.isfinite, point)):
                return point
        raise ValueError(
            f"habitat-sim found no navigable point in {POINT_TRIES} tries; leave the scene out of habitat.scenes"
        )

    def distances_to(self, goal: Point) -> Callable[[Point], float]:
        """Geodesic distances on the navmesh."""
        path, pathfinder = self._habitat_sim.ShortestPath(), self._sim.pathfinder
        path.requested_end = _to_habitat(goal)

        def distance(point: Point) -> float:
            path.requested_start = _to_habitat(point)
            return float(path.geodesic_distance) if pathfinder.find_path(path) else math.inf

        return distance

    def place(self, point: Point, heading: float) -> None:
        """Puts the agent on a point."""
        state = self._habitat_sim.AgentState()
        state.position = _to_habitat(point)
        half_yaw = (heading - math.pi / 2) / 2
        state.rotation = np.array([0.0, math.sin(half_yaw), 0.0, math.cos(half_yaw)])  # x, y, z, w
        self._sim.get_agent(0).set_state(state)
        self._depth = self._sim.get_sensor_observations()["depth"]

    def act(self, action: int) -> bool:
        """Moves or turns, and renders."""
        observations = self._sim.step(ACTIONS[action])
        self._depth = observations["depth"]
        return bool(observations["collided"])

    def pose(self) -> tuple[Point, float]:
        """Where the agent is, and its heading."""
        state = self._sim.get_agent(0).get_state()
        yaw = 2 * math.atan2(state.rotation.y, state.rotation.w)
        return _from_habitat(state.position), math.remainder(yaw + math.pi / 2, math.tau)

    def depth(self) -> NDArray[np.float32]:
        """The last depth image; habitat-sim renders into the same buffer every time, so this is a copy of it."""
        return np.clip(np.asarray(self._depth, dtype=np.float32), 0.0, MAX_DEPTH_M)[None].copy()

    def close(self) -> None:
        """Ends the simulator and its rendering context."""
        if self._sim is not None:
            self._sim.close()
            self._sim = None


def _from_habitat(position: Any) -> Point:
    return float(position[0]), -float(position[2]), float(position[1])


def _to_habitat(point: Point) -> NDArray[np.float32]:
    return np.array([point[0], point[2], -point[1]], dtype=np.float32)
