"""One env step of `atari`; as a program it prints how far the step costs of the heterogeneous workload lie apart."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from benchmarks.hot_paths.stepping import print_spread, time_steps
from rlbench.scenarios.atari import FAMILY


@pytest.mark.parametrize("variant", ["breakout", "pong"])
def bench_env_step(benchmark: Any, variant: str) -> None:
    """One env step, resets included."""
    time_steps(benchmark, FAMILY.make(variant, "homogeneous"))


if __name__ == "__main__":
    all_games = FAMILY.make("", "heterogeneous")
    print_spread(all_games, all_games.games, process_time)
