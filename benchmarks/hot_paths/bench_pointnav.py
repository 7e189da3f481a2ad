"""Time of one env step of `pointnav`, depth image included: `nox -s bench`. 3,000 env steps/s are 333 us."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rlbench.scenarios.pointnav.plan import PlanSettings
from rlbench.scenarios.pointnav.spread import ACTION_MIX
from rlbench.scenarios.pointnav.task import PointNavEnv, TaskSettings
from rlbench.scenarios.pointnav.world import FloorPlanWorld

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

NEVER = 10**9


@pytest.mark.parametrize("resolution", [64, 128])
@pytest.mark.parametrize("side", [2, 10, 48])
def test_step(benchmark: BenchmarkFixture, side: int, resolution: int) -> None:
    """One env step with random moves and turns in a plan of side x side rooms; no reset."""
    world = FloorPlanWorld(PlanSettings(num_columns=side, num_rows=side), 0.15, resolution, 0)
    env = PointNavEnv(world, TaskSettings(max_steps=NEVER, max_distance_m=8.0), resolution, 0)
    env.reset()
    actions = itertools.cycle(np.random.default_rng(0).choice(ACTION_MIX, size=997).tolist())
    benchmark(lambda: env.step(next(actions)))


@pytest.mark.parametrize("side", [2, 48])
def test_reset(benchmark: BenchmarkFixture, side: int) -> None:
    """One reset that keeps its floor plan: draws start and goal, and their geodesic distance."""
    world = FloorPlanWorld(PlanSettings(num_columns=side, num_rows=side), 0.15, 64, 0)
    env = PointNavEnv(world, TaskSettings(max_distance_m=8.0), 64, 0)
    env.reset()
    benchmark(env.reset)
