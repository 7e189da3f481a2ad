"""Times what `rlbench_client.count` adds to an env step that does nothing, and its share of a real env step.

`python -m benchmarks.hot_paths.bench_client` steps a bare environment and a counted one in turn, A B B A. It prints the
difference of their fastest blocks (disturbances only lengthen a block) in microseconds per step, with its share of the
median step of `vizdoom/basic`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gymnasium

import rlbench_client
from benchmarks.hot_paths.stepping import Stepper, make_env
from rlbench.scenarios.vizdoom import FAMILY
from rlbench_client.counters import FOLDER_VARIABLE

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

NUM_STEPS = 20_000
"""Env steps of a block."""
NUM_BLOCKS = 20
NUM_REAL_STEPS = 2_000


class IdleEnv(gymnasium.Env[int, int]):
    """Does nothing; an episode is 100 env steps."""

    def __init__(self) -> None:
        self._at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:  # noqa: ARG002
        """Begins an episode."""
        self._at = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Does nothing."""
        self._at += 1
        return action, 1.0, self._at == 100, False, {}


def block_s(env: gymnasium.Env[int, int]) -> float:
    """Seconds of an env step, mean over a block."""
    env.reset()
    begin = perf_counter()
    for _ in range(NUM_STEPS):
        if env.step(0)[2]:
            env.reset()
    return (perf_counter() - begin) / NUM_STEPS


def cost_s() -> float:
    """Seconds that counting adds to an env step, resets and ends of episodes included."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER_VARIABLE] = folder
        bare, counted = IdleEnv(), rlbench_client.count(gymnasium.Wrapper(IdleEnv()))
        wrapped: gymnasium.Env[int, int] = gymnasium.Wrapper(bare)
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(NUM_BLOCKS):
            for is_counted in (False, True, True, False):
                times[is_counted].append(block_s(counted if is_counted else wrapped))
        del os.environ[FOLDER_VARIABLE]
    return min(times[True]) - min(times[False])


def real_step_s() -> float:
    """The median env step of `vizdoom/basic`, resets included."""
    scenario = FAMILY.make("basic", "homogeneous")
    env = make_env(scenario, 0)
    step = Stepper(env)
    times = []
    for _ in range(NUM_REAL_STEPS):
        begin = perf_counter()
        step()
        times.append(perf_counter() - begin)
    env.close()
    return median(times)


def bench_counting(benchmark: BenchmarkFixture) -> None:
    """The cost of counting an env step, and its share of a real one."""
    found: list[float] = []
    benchmark.pedantic(lambda: found.append(cost_s()), rounds=1)  # type: ignore[no-untyped-call]  # it leaves it untyped
    share = found[0] / real_step_s()
    benchmark.extra_info.update(counting_cost_s=found[0], share_of_vizdoom_step=share)
    print(f"\ncounting takes {found[0] * 1e6:.2f} us of an env step, {share:.2%} of one of vizdoom/basic")


if __name__ == "__main__":
    cost, real = cost_s(), real_step_s()
    sys.stdout.write(
        f"counting takes {cost * 1e6:.2f} us, an env step of vizdoom/basic {real * 1e6:.0f} us: {cost / real:.2%}\n"
    )
