"""A scenario: corridors, one step wide."""

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings


class CorridorEnv(gymnasium.Env[dict[str, Any], int]):
    """Walk to the end."""

    def __init__(self, length: int) -> None:
        self.length, self.at = length, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins at the start."""
        super().reset(seed=seed, options=options)
        self.at = 0
        return self._look(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Stands still or goes on; an env step is two frames."""
        self.at += action
        end = self.at >= self.length
        return self._look(), float(end), end, False, {"success": float(end), "num_frames": 2}

    def _look(self) -> dict[str, Any]:
        return {"position": np.array([self.at / self.length], dtype=np.float32)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Corridor:
    """A corridor; heterogeneous: their lengths differ."""

    name: str = "corridor"
    workload: str = "homogeneous"
    num_envs: int = 3
    rollout_steps: int = 8
    policy: str = "small"
    learn: LearnSettings = field(default_factory=LearnSettings)
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    preload: tuple[str, ...] = ()
    length: int = 5

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """Back and forth."""
        return gymnasium.spaces.Discrete(2)

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """Where one is, as a share of the way."""
        return gymnasium.spaces.Dict({"position": gymnasium.spaces.Box(0, 1, (1,), np.float32)})

    def make_env(self, seat: Seat) -> CorridorEnv:
        """Makes an environment, in the process that will step it."""
        return CorridorEnv(self.length + (seat.global_index if self.workload == "heterogeneous" else 0))


class CorridorFamily:
    """What `--scenario corridor` names."""

    about = "a corridor"
    variants = ()

    def unavailable(self) -> str | None:
        """Returns what is missing, if it cannot run here."""
        return None

    def make(self, variant: str, workload: str) -> Corridor:  # noqa: ARG002  it has no variants
        """Makes the work of a cell."""
        return Corridor(workload=workload)


FAMILY = CorridorFamily()
