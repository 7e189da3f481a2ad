"""The scenario `habitat`: its settings, and the family that makes it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings
from rlbench.scenarios.pointnav.workload import check_workload

if TYPE_CHECKING:
    import gymnasium

    from rlbench.harness.contract.device import Seat
    from rlbench.scenarios.pointnav.task import PointNavEnv

INSTALL = "conda install habitat-sim headless -c conda-forge -c aihabitat-nightly"


@dataclass(frozen=True, kw_only=True, slots=True)
class Habitat:
    """PointGoal navigation on habitat-sim, with DD-PPO's settings (section 4); the task is `pointnav`'s.

    Homogeneous: scenes of about the same size. Heterogeneous: scenes of all sizes (our own floor plans: 2x2 to 12x12
    rooms). An environment keeps the scene that its global index gives it.
    """

    name: str = "habitat"
    workload: str = "homogeneous"
    num_envs: int = 4
    """Environments of one rank."""
    rollout_steps: int = 128
    """T: steps of each environment in one rollout."""
    policy: str = "resnet"
    """One of `small`, `conv`, `nature`, `resnet`."""
    learn: LearnSettings = field(default_factory=LearnSettings)
    gpu_costs: GpuCosts = field(default_factory=lambda: replace(TYPICAL_GPU_COSTS, render_s=0.001))
    preload: tuple[str, ...] = ("habitat_sim", "rlbench.scenarios.habitat.world")
    scenes: str = ""
    """A folder of .glb scenes; empty: our own floor plans, exported into the user's cache."""
    resolution: int = 128
    """Rows and columns of the depth image."""
    max_steps: int = 500
    """Time limit of an episode, env steps."""
    min_distance_m: float = 1.0
    """Least geodesic distance from start to goal."""
    max_distance_m: float = 30.0
    """Greatest geodesic distance from start to goal."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        check_workload(self.workload)
        rules = (
            ("num_envs", self.num_envs >= 1, "at least 1"),
            ("rollout_steps", self.rollout_steps >= 1, "at least 1"),
            ("resolution", self.resolution >= 8, "at least 8"),
            ("max_steps", self.max_steps >= 1, "at least 1"),
            ("min_distance_m", self.min_distance_m >= 0, "at least 0"),
            (
                "max_distance_m",
                self.max_distance_m > self.min_distance_m,
                f"above min_distance_m={self.min_distance_m:g}",
            ),
            ("scenes", not self.scenes or Path(self.scenes).is_dir(), "a folder of .glb scenes, or empty for our own"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{self.name}.{name}={getattr(self, name)}: must be {rule}")

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """`depth`: float32 [1, H, W], metres; `goal`: float32 [3]: distance in metres, cos and sin of the angle."""
        from rlbench.scenarios.pointnav.task import observation_space

        return observation_space(self.resolution)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """`scenarios.pointnav.task.ACTIONS`."""
        from rlbench.scenarios.pointnav.task import action_space

        return action_space()

    def scene_of(self, global_index: int) -> Path:
        """The scene of an environment."""
        from rlbench.scenarios.habitat.scenes import choose_scene, find_scenes, own_scenes

        scenes = find_scenes(Path(self.scenes)) if self.scenes else own_scenes(self.workload)
        return choose_scene(scenes, self.workload, global_index)

    def part(self, global_index: int, seed: int) -> str:  # noqa: ARG002  the same for every seed
        """The name of the scene."""
        return self.scene_of(global_index).stem

    def make_env(self, seat: Seat) -> PointNavEnv:
        """Makes one environment; it renders on the seat's device, its episodes come from the seat's seed."""
        from rlbench.scenarios.habitat.world import HabitatWorld
        from rlbench.scenarios.pointnav.task import PointNavEnv, TaskSettings

        task = TaskSettings(
            max_steps=self.max_steps, min_distance_m=self.min_distance_m, max_distance_m=self.max_distance_m
        )
        world = HabitatWorld(self.scene_of(seat.global_index), seat.device.torch_name, self.resolution)
        return PointNavEnv(world, task, self.resolution, seat.seed)


class HabitatFamily:
    """The entry point `habitat`."""

    draws = True
    about = "PointGoal navigation with depth on habitat-sim, over .glb scenes or our own floor plans"
    variants: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        """None, or the command that installs habitat-sim."""
        if importlib.util.find_spec("habitat_sim") is None:
            return f"habitat-sim is not installed; {INSTALL}"
        return None

    def make(self, variant: str, workload: str) -> Habitat:
        """Makes the scenario; it has no variants."""
        if variant:
            raise ValueError(f"habitat/{variant}: unknown; habitat has no variants, write `habitat`")
        return Habitat(workload=workload)

    def moved(
        self, variant: str, settings: Mapping[str, str], move: Callable[[str], str]
    ) -> tuple[str, dict[str, str]]:
        """The settings, with the folder of scenes moved."""
        return variant, {key: move(text) if key == "scenes" else text for key, text in settings.items()}


FAMILY = HabitatFamily()
