"""One env step of `vizdoom`; as a program it prints how far the step costs of the heterogeneous workload lie apart."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest

from benchmarks.hot_paths.stepping import print_spread, time_steps
from rlbench.scenarios.vizdoom import FAMILY


@pytest.mark.parametrize("variant", ["basic", "my_way_home"])
def bench_env_step(benchmark: Any, variant: str) -> None:
    """One env step, resets included."""
    time_steps(benchmark, FAMILY.make(variant, "homogeneous"))


if __name__ == "__main__":
    mixed = FAMILY.make("", "heterogeneous")
    num_kinds = len(mixed.maps) * len(mixed.render_resolutions)
    print_spread(mixed, [" ".join(mixed.kind(index)) for index in range(num_kinds)], perf_counter)
