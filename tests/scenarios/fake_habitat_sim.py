"""A test double of habitat-sim's Python interface: of the simulator, and of nothing of ours.

It holds callers to what the real one demands (observed on 0.3.3): positions are float32 numpy arrays, the GPU is -1
without CUDA, rotations are unit quaternions, nothing is called after `close`, all observations share one buffer, y is
up and the agent looks along -z. Its scenes are those of `export_scenes`, recognised by name, so its navmesh is exact; a
second, smaller island lies on top of a wall.
"""

from __future__ import annotations

import importlib.machinery
import math
import re
import types
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlbench.scenarios.pointnav.depth import DepthCamera
from rlbench.scenarios.pointnav.export import plan_of_scene
from rlbench.scenarios.pointnav.geodesic import FreeSpace, GeodesicField

AGENT_RADIUS_M = 0.1
WALL_TOP_M = 2.5


def float32_vector(value: Any) -> np.ndarray:
    """The value, if habitat-sim would take it for a position; raises TypeError as its bindings do."""
    if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.shape != (3,):
        raise TypeError(f"incompatible function arguments: a float32 array of 3 is needed, got {value!r}")
    return value


class Spec(types.SimpleNamespace):
    """A struct whose fields are set one by one, and known beforehand."""

    fields: ClassVar[tuple[str, ...]] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.fields:
            raise AttributeError(f"{type(self).__name__} has no field {name}")
        if name in {"position", "requested_start", "requested_end"}:
            float32_vector(value)
        super().__setattr__(name, value)


class SimulatorConfiguration(Spec):
    fields = ("scene_id", "enable_physics", "gpu_device_id")


class CameraSensorSpec(Spec):
    fields = ("uuid", "sensor_type", "resolution", "position")


class AgentConfiguration(Spec):
    fields = ("sensor_specifications", "action_space")


class AgentState(Spec):
    fields = ("position", "rotation")


class ShortestPath(Spec):
    fields = ("requested_start", "requested_end", "geodesic_distance")


class NavMeshSettings:
    ready = False

    def set_defaults(self) -> None:
        self.ready = True


class SensorType:
    DEPTH = "depth"


class ActuationSpec:
    def __init__(self, amount: float) -> None:
        self.amount = amount


class ActionSpec:
    def __init__(self, name: str, actuation: ActuationSpec) -> None:
        assert name in {"move_forward", "turn_left", "turn_right"}
        self.name, self.actuation = name, actuation


class Configuration:
    def __init__(self, sim_cfg: SimulatorConfiguration, agents: list[AgentConfiguration]) -> None:
        self.sim_cfg, self.agents = sim_cfg, agents


class PathFinder:
    """The navmesh of one exported floor plan."""

    def __init__(self, space: FreeSpace) -> None:
        self.space, self.is_loaded, self.rng = space, False, np.random.default_rng(0)
        self.fields: dict[tuple[float, float], GeodesicField] = {}

    @property
    def num_islands(self) -> int:
        return 2 if self.is_loaded else 0

    def island_area(self, island_index: int) -> float:
        return (0.4, 30.0)[island_index]

    def get_random_navigable_point(self, max_tries: int = 10, island_index: int = -1) -> np.ndarray:
        assert max_tries > 0
        if self.rng.random() < 0.1:
            return np.full(3, np.nan, dtype=np.float32)
        if island_index == 0 or (island_index == -1 and self.rng.random() < 0.5):
            return np.array([0.0, WALL_TOP_M, -1.0], dtype=np.float32)
        x, y = self.space.sample(self.rng)
        return np.array([x, 0.0, -y], dtype=np.float32)

    def find_path(self, path: ShortestPath) -> bool:
        start, end = path.requested_start, path.requested_end
        goal = (float(end[0]), -float(end[2]))
        here = self.space.cells_at((float(start[0]), -float(start[2])))
        if start[1] > 1 or end[1] > 1 or not here or not self.space.cells_at(goal):
            path.geodesic_distance = math.inf
            return False
        field = self.fields.setdefault(goal, GeodesicField(self.space, goal))
        path.geodesic_distance = field.distance((float(start[0]), -float(start[2])), here)
        return True


class Agent:
    def __init__(self) -> None:
        self.position, self.yaw = np.zeros(3, dtype=np.float32), 0.0
        self.exact = (0.0, 0.0)  # seen from above: rounded to float32, a point at a wall may lie inside it

    def set_state(self, state: AgentState) -> None:
        x, y, z, w = np.asarray(state.rotation)
        assert math.isclose(float(np.linalg.norm(state.rotation)), 1.0, rel_tol=1e-4)
        assert x == z == 0
        self.position, self.yaw = state.position, 2 * math.atan2(y, w)
        self.exact = (float(state.position[0]), -float(state.position[2]))

    def get_state(self) -> types.SimpleNamespace:
        rotation = types.SimpleNamespace(w=math.cos(self.yaw / 2), x=0.0, y=math.sin(self.yaw / 2), z=0.0)
        return types.SimpleNamespace(position=self.position, rotation=rotation)


class Simulator:
    """Keeps a list of those that are open."""

    open: ClassVar[list[Simulator]] = []

    def __init__(self, config: Configuration) -> None:
        if config.sim_cfg.gpu_device_id != -1:
            raise RuntimeError(f"unable to find CUDA device {config.sim_cfg.gpu_device_id} among 1 EGL devices")
        scene = Path(config.sim_cfg.scene_id)
        match = re.fullmatch(r"plan-s(\d+)-(\d+)-(\d+)x\d+\.glb", scene.name)
        assert match is not None
        assert scene.read_bytes()[:4] == b"glTF"
        seed, index, side = map(int, match.groups())
        plan, (agent,) = plan_of_scene(seed, index, side), config.agents
        (sensor,) = agent.sensor_specifications
        assert sensor.sensor_type == SensorType.DEPTH
        self.actions, self.uuid = agent.action_space, sensor.uuid
        self.camera = DepthCamera(plan.walls(), sensor.resolution[0], 90)
        self.buffer = np.zeros(sensor.resolution, dtype=np.float32)
        self._pathfinder, self._agent, self.seeds = PathFinder(FreeSpace.of(plan, AGENT_RADIUS_M)), Agent(), list[int]()
        self.open.append(self)

    def _check_open(self) -> None:
        assert self in self.open, "used after close()"

    @property
    def pathfinder(self) -> PathFinder:
        self._check_open()
        return self._pathfinder

    def recompute_navmesh(self, pathfinder: PathFinder, settings: NavMeshSettings) -> bool:
        assert settings.ready
        pathfinder.is_loaded = True
        return True

    def seed(self, new_seed: int) -> None:
        assert isinstance(new_seed, int)
        self.seeds.append(new_seed)
        self.pathfinder.rng = np.random.default_rng(new_seed)

    def get_agent(self, agent_id: int) -> Agent:
        self._check_open()
        assert agent_id == 0
        return self._agent

    def get_sensor_observations(self) -> dict[str, Any]:
        agent = self.get_agent(0)
        x, _, z = agent.position.tolist()
        self.buffer[:] = self.camera.image(x, -z, agent.yaw + math.pi / 2)[0]
        self.buffer[0, 0] = 0.0  # nothing was hit there: there is no ceiling
        return {self.uuid: self.buffer}

    def step(self, action: str) -> dict[str, Any]:
        agent, amount, collided = self.get_agent(0), self.actions[action].actuation.amount, False
        if action == "move_forward":
            dx, dy = -amount * math.sin(agent.yaw), amount * math.cos(agent.yaw)
            space = self.pathfinder.space
            _, agent.exact, collided = space.slide(space.cells_at(agent.exact)[0], agent.exact, dx, dy)
            (x, y), height = agent.exact, agent.position[1]
            agent.position = np.array([x, height, -y], dtype=np.float32)
        else:
            agent.yaw += math.radians(amount) * (1 if action == "turn_left" else -1)
        return {**self.get_sensor_observations(), "collided": collided}

    def close(self) -> None:
        self._check_open()
        self.open.remove(self)


def module() -> types.ModuleType:
    """The double, as the module `habitat_sim`."""
    fake = types.ModuleType("habitat_sim")
    fake.__spec__ = importlib.machinery.ModuleSpec("habitat_sim", None)
    names = (SimulatorConfiguration, CameraSensorSpec, AgentState, ShortestPath, NavMeshSettings, SensorType)
    for item in (*names, Configuration, Simulator):
        setattr(fake, item.__name__, item)
    agent = types.SimpleNamespace(
        AgentConfiguration=AgentConfiguration, ActionSpec=ActionSpec, ActuationSpec=ActuationSpec
    )
    fake.agent = agent  # type: ignore[attr-defined]  # a module made at run time
    return fake
