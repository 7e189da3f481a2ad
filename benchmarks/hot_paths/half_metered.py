"""Preloaded into environment workers by `bench_metering`: they count in every other pair of iterations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rlbench.harness.contract.envs import make_counted_env
from rlbench.harness.metering.counted import CountedEnv
from rlbench.systems.engine.workers import worker

if TYPE_CHECKING:
    from pathlib import Path

    from rlbench.harness.contract.device import Seat
    from rlbench.harness.contract.scenario import Scenario


def is_metered(iteration: int) -> bool:
    """Whether metering is on: on, off, off, on, ..."""
    return iteration % 4 in {0, 3}


class HalfCountedEnv:
    """A `CountedEnv` that does not count its steps in the iterations that are not metered.

    In lockstep an environment takes the same number of steps in every iteration, so it knows the iteration by itself.
    """

    def __init__(self, env: CountedEnv, steps_per_iteration: int) -> None:
        self._counted = env
        self._plain = env._env
        self._steps_per_iteration = steps_per_iteration
        self._num_steps = 0

    def reset(self, seed: int | None = None) -> Any:
        """Begins an episode."""
        return self._counted.reset(seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One env step, counted or not."""
        iteration = self._num_steps // self._steps_per_iteration
        self._num_steps += 1
        if is_metered(iteration):
            return self._counted.step(action)
        observation, reward, terminated, truncated, info = self._plain.step(action)
        if terminated or truncated:
            info["episode"] = (math.nan, 0.0, math.nan, math.nan)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def close(self) -> None:
        """Closes the environment."""
        self._counted.close()


def make_half_counted_env(scenario: Scenario, seat: Seat, folder: Path, meter: Path) -> HalfCountedEnv:
    """Stands in for `make_counted_env`."""
    return HalfCountedEnv(make_counted_env(scenario, seat, folder, meter), scenario.rollout_steps)


vars(worker)["make_counted_env"] = make_half_counted_env
