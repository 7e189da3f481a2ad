"""One env step of `vizdoom`; as a program it prints how far the step costs of the heterogeneous workload lie apart."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
import pytest

from scenarios.vizdoom import FAMILY, VizdoomScenario
from tests.scenarios.seats import seat_of


def make_env(scenario: VizdoomScenario, index: int) -> gymnasium.Env[dict[str, Any], int]:
    """Makes environment `index` of a run; these render on the CPU and use no device."""
    return scenario.make_env(seat_of(num_ranks=1, index=index, num_envs=1000, seed=index))


class Stepper:
    """Steps one environment with random actions; resets belong to a step, as they do in a run."""

    def __init__(self, env: gymnasium.Env[dict[str, Any], int], num_actions: int) -> None:
        self._env = env
        self._actions = np.random.default_rng(0).integers(num_actions, size=10_000)
        self._next = 0
        env.reset()

    def __call__(self) -> None:
        """One env step."""
        action = int(self._actions[self._next % len(self._actions)])
        self._next += 1
        _, _, terminated, truncated, _ = self._env.step(action)
        if terminated or truncated:
            self._env.reset()


@pytest.mark.parametrize("variant", ["basic", "my_way_home"])
def bench_env_step(benchmark: Any, variant: str) -> None:
    """One env step, resets included."""
    scenario = FAMILY.make(variant, "homogeneous")
    env = make_env(scenario, 0)
    benchmark.pedantic(Stepper(env, scenario.num_actions), rounds=1000, iterations=1, warmup_rounds=100)
    env.close()


def mean_step_s(step: Stepper) -> float:
    """Mean over 400 env steps, seconds."""
    start_s = perf_counter()
    for _ in range(400):
        step()
    return (perf_counter() - start_s) / 400


def print_spread() -> None:
    """Prints the mean step time of every kind of environment (the median of five, taken in turn), and their spread."""
    scenario = FAMILY.make("", "heterogeneous")
    num_kinds = len(scenario.maps) * len(scenario.render_resolutions)
    names = [" ".join(scenario.kind(index)) for index in range(num_kinds)]
    envs = [make_env(scenario, index) for index in range(len(names))]
    steppers = [Stepper(env, scenario.num_actions) for env in envs]
    means = np.median([[mean_step_s(step) for step in steppers] for _ in range(5)], axis=0)
    for env in envs:
        env.close()
    for name, mean_s in zip(names, means, strict=True):
        sys.stdout.write(f"{name:40} {mean_s * 1e6:7.0f} us per env step\n")
    spread = f"coefficient of variation {means.std() / means.mean():.2f}, max/min {means.max() / means.min():.1f}"
    sys.stdout.write(f"mean {means.mean() * 1e6:.0f} us, {spread}\n")


if __name__ == "__main__":
    print_spread()
