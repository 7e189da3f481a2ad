"""Measures how much step times differ over the environments of a run: `python -m rlbench.scenarios.pointnav.spread`."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass

import numpy as np

from rlbench.scenarios.pointnav.scenario import PointNav
from rlbench.scenarios.pointnav.task import MOVE_FORWARD, TURN_LEFT, TURN_RIGHT, PointNavEnv, TaskSettings
from rlbench.scenarios.pointnav.workload import LARGE_SIDE, SMALL_SIDE, rooms_per_side
from rlbench.scenarios.pointnav.world import FloorPlanWorld

ACTION_MIX = (MOVE_FORWARD, MOVE_FORWARD, TURN_LEFT, TURN_RIGHT)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimeSpread:
    """Mean step times of environments that differ in the size of their floor plans."""

    step_s: dict[int, float]
    """Mean seconds of an env step, by rooms per side."""
    max_over_min: float
    coefficient_of_variation: float
    """Standard deviation / mean over environments whose shares are uniform, as in a run."""


def measure_step_s(side: int, num_steps: int, scenario: PointNav) -> float:
    """Mean seconds of an env step with random actions in a plan of side x side rooms; resets are left out."""
    settings = scenario.plan_settings(0, side=side)
    task = TaskSettings(max_steps=num_steps + 10, max_distance_m=scenario.max_distance_m)
    env = PointNavEnv(FloorPlanWorld(settings, scenario.radius_m, scenario.resolution, 0), task, scenario.resolution, 0)
    env.reset()
    actions = np.random.default_rng(0).choice(ACTION_MIX, size=num_steps + 10).tolist()
    for action in actions[:10]:  # warm-up: first touches of the camera's buffers
        env.step(action)
    begin = time.perf_counter()
    for action in actions[10:]:
        env.step(action)
    return (time.perf_counter() - begin) / num_steps


def measure_spread(num_steps: int = 1000, num_sizes: int = 12) -> StepTimeSpread:
    """Measures the heterogeneous workload of `pointnav` on this machine, one process, `num_steps` for each size.

    The shares (see `workload.spread`) are the midpoints of `num_sizes` equal parts of [0, 1), and both ends.
    """
    scenario = PointNav(workload="heterogeneous")
    shares = [rooms_per_side((part + 0.5) / num_sizes) for part in range(num_sizes)]
    sides = sorted({SMALL_SIDE, LARGE_SIDE, *shares})
    step_s = {side: measure_step_s(side, num_steps, scenario) for side in sides}
    of_environments = [step_s[side] for side in shares]
    return StepTimeSpread(
        step_s=step_s,
        max_over_min=max(step_s.values()) / min(step_s.values()),
        coefficient_of_variation=statistics.pstdev(of_environments) / statistics.fmean(of_environments),
    )


def main() -> None:
    """Prints the table."""
    found = measure_spread()
    lines = [f"{side:3d} x {side:<3d} rooms {1e6 * step_s:8.1f} us/step" for side, step_s in found.step_s.items()]
    lines.append(f"max/min {found.max_over_min:.1f}, coefficient of variation {found.coefficient_of_variation:.2f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
