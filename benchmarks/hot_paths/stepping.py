"""Env steps of scenarios that render on the CPU, with random actions: what `bench_atari` and `bench_vizdoom` share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlbench.harness.contract.scenario import Scenario
from tests.scenarios.seats import seat_of


def make_env(scenario: Scenario, index: int) -> gymnasium.Env[dict[str, Any], int]:
    """Makes environment `index` of a run; these render on the CPU and use no device."""
    return scenario.make_env(seat_of(num_ranks=1, index=index, num_envs=1000, seed=index))


class Stepper:
    """Steps one environment with random actions; resets belong to a step, as they do in a run."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        env.action_space.seed(0)
        self._actions = [env.action_space.sample() for _ in range(10_000)]
        self._next = 0
        env.reset()

    def __call__(self) -> None:
        """One env step."""
        action = self._actions[self._next % len(self._actions)]
        self._next += 1
        _, _, terminated, truncated, _ = self._env.step(action)
        if terminated or truncated:
            self._env.reset()


def time_steps(benchmark: Any, scenario: Scenario) -> None:
    """One env step of the scenario's first environment, resets included."""
    env = make_env(scenario, 0)
    benchmark.pedantic(Stepper(env), rounds=1000, iterations=1, warmup_rounds=100)
    env.close()


def print_spread(scenario: Scenario, kinds: Sequence[str], clock: Callable[[], float]) -> None:
    """Prints the mean step time of every kind of environment (the median of five, taken in turn), and their spread.

    Args:
        scenario: its environment i is of kind i.
        kinds: their names.
        clock: tells seconds.
    """
    envs = [make_env(scenario, index) for index in range(len(kinds))]
    steppers = [Stepper(env) for env in envs]
    means = np.median([[_mean_step_s(step, clock) for step in steppers] for _ in range(5)], axis=0)
    for env in envs:
        env.close()
    for kind, mean_s in zip(kinds, means, strict=True):
        sys.stdout.write(f"{kind:40} {mean_s * 1e6:7.0f} us per env step\n")
    spread = f"coefficient of variation {means.std() / means.mean():.2f}, max/min {means.max() / means.min():.1f}"
    sys.stdout.write(f"mean {means.mean() * 1e6:.0f} us, {spread}\n")


def _mean_step_s(step: Stepper, clock: Callable[[], float]) -> float:
    """Mean over 400 env steps, seconds."""
    start_s = clock()
    for _ in range(400):
        step()
    return (clock() - start_s) / 400
