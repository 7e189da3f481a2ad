"""Preloaded into environment workers by `bench_metering`: their environments then count nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from systems.engine import worker

if TYPE_CHECKING:
    from pathlib import Path

    from harness.contract import Scenario, Seat


class UncountedEnv:
    """What `CountedEnv` does, less the counting."""

    def __init__(self, scenario: Scenario, seat: Seat) -> None:
        self._env = scenario.make_env(seat)

    def reset(self, seed: int | None = None) -> dict[str, Any]:
        """Begins an episode."""
        return self._env.reset(seed=seed)[0]

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One env step."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        if terminated or truncated:
            info["episode"] = (math.nan,) * 4
        return observation, float(reward), bool(terminated), bool(truncated), info

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


def make_uncounted_env(scenario: Scenario, seat: Seat, folder: Path, meter: Path) -> UncountedEnv:  # noqa: ARG001
    """Stands in for `make_counted_env`."""
    return UncountedEnv(scenario, seat)


vars(worker)["make_counted_env"] = make_uncounted_env
