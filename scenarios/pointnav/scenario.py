"""The scenario `pointnav`: its settings, and the family that makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings
from rlbench.scenarios.pointnav.plan import PlanSettings
from rlbench.scenarios.pointnav.workload import SMALL_SIDE, check_workload, rooms_per_side, spread

if TYPE_CHECKING:
    from pathlib import Path

    import gymnasium

    from rlbench.harness.contract.device import Seat
    from rlbench.scenarios.pointnav.task import PointNavEnv


def quick_learning() -> LearnSettings:
    """DD-PPO's settings with a larger step size: the small policy masters the small plans on a CPU in minutes."""
    return LearnSettings(learning_rate=1e-3, normalize_advantages="all")


@dataclass(frozen=True, kw_only=True, slots=True)
class PointNav:
    """PointGoal navigation in generated floor plans.

    Homogeneous: every environment has a plan of 2x2 rooms of its own. Heterogeneous: n x n rooms, n from 2 to 48,
    log-spaced and drawn by the environment's global index. Step times then differ by about a factor of 20, with a
    coefficient of variation over environments of about 1 (`python -m rlbench.scenarios.pointnav.spread` measures it).
    """

    name: str = "pointnav"
    workload: str = "homogeneous"
    num_envs: int = 8
    """Environments of one rank."""
    rollout_steps: int = 128
    """T: steps of each environment in one rollout."""
    policy: str = "small"
    """One of `small`, `conv`, `nature`, `resnet`."""
    learn: LearnSettings = field(default_factory=quick_learning)
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    preload: tuple[str, ...] = ("rlbench.scenarios.pointnav.world", "rlbench.scenarios.pointnav.task")
    resolution: int = 64
    """Rows and columns of the depth image."""
    max_steps: int = 200
    """Time limit of an episode, env steps; twice what a walk of `max_distance_m` with some turning takes."""
    min_distance_m: float = 1.0
    """Least geodesic distance from start to goal."""
    max_distance_m: float = 8.0
    """Greatest geodesic distance from start to goal."""
    radius_m: float = 0.15
    """Radius of the agent, which keeps this distance from walls."""
    episodes_per_plan: int = 0
    """Episodes after which an environment draws a new plan; 0: it keeps its own."""

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
            ("radius_m", 0 < self.radius_m <= 0.4, "above 0 and at most 0.4: doors are 1 m wide"),
            ("episodes_per_plan", self.episodes_per_plan >= 0, "at least 0"),
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
        """`task.ACTIONS`."""
        from rlbench.scenarios.pointnav.task import action_space

        return action_space()

    def plan_settings(self, global_index: int, side: int | None = None) -> PlanSettings:
        """What the floor plans of an environment look like; `side` overrides its rooms per side."""
        if side is None:
            side = SMALL_SIDE if self.workload == "homogeneous" else rooms_per_side(spread(global_index))
        return PlanSettings(num_columns=side, num_rows=side)

    def part(self, global_index: int, seed: int) -> str:  # noqa: ARG002  the same for every seed
        """The size of the floor plans."""
        plan = self.plan_settings(global_index)
        return f"{plan.num_columns}x{plan.num_rows} rooms"

    def make_env(self, seat: Seat) -> PointNavEnv:
        """Makes one environment; its plans and episodes come from the seat's seed."""
        from rlbench.scenarios.pointnav.task import PointNavEnv, TaskSettings
        from rlbench.scenarios.pointnav.world import FloorPlanWorld

        world = FloorPlanWorld(
            self.plan_settings(seat.global_index), self.radius_m, self.resolution, self.episodes_per_plan
        )
        task = TaskSettings(
            max_steps=self.max_steps, min_distance_m=self.min_distance_m, max_distance_m=self.max_distance_m
        )
        return PointNavEnv(world, task, self.resolution, seat.seed)


class PointNavFamily:
    """The entry point `pointnav`."""

    draws = True
    about = "PointGoal navigation with depth in generated floor plans: 2x2 rooms; heterogeneous 2x2 to 48x48"
    variants: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        """None: it needs no simulator."""
        return None

    def make(self, variant: str, workload: str) -> PointNav:
        """Makes the scenario; it has no variants."""
        if variant:
            raise ValueError(f"pointnav/{variant}: unknown; pointnav has no variants, write `pointnav`")
        return PointNav(workload=workload)

    def export_scenes(self, folder: Path, count: int, seed: int, workload: str) -> list[Path]:
        """Writes floor plans as .glb files, for `rlbench scenes`; see `scenarios.pointnav.export`."""
        from rlbench.scenarios.pointnav.export import export_scenes

        return export_scenes(folder, count, seed, workload)


FAMILY = PointNavFamily()
