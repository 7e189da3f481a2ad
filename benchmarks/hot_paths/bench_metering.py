"""What metering costs: `sync` on `pointnav`, the fastest scenario, with metering on against off.

In one run, metering is on in iterations 0, 3, 4, 7, ... and off in the others (A B B A), in the rank and its workers,
so both sides see the same machine, the same processes and, on average, the same work. The cost is the mean of
(on - off) / off over blocks of four iterations, with its standard error.
`python -m benchmarks.hot_paths.bench_metering` makes the run and prints the seconds of each iteration.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from benchmarks.hot_paths.half_metered import is_metered
from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.system import Context
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.meter import RankMeter
from rlbench.scenarios.pointnav import FAMILY
from rlbench.systems.sync.spec import SPEC

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

NUM_WARM_UP = 8
"""Iterations that are dropped; a multiple of 4."""
NUM_ITERATIONS = NUM_WARM_UP + 300


class HalfMeteredRank(RankMeter):
    """A meter that times spans in every other pair of iterations."""

    def span(self, kind: str) -> AbstractContextManager[None]:
        """Times a span, or does nothing."""
        return super().span(kind) if is_metered(self._block.get("iteration")) else nullcontext()


def iteration_seconds(folder: Path) -> list[float]:
    """Makes the run; returns the seconds of each iteration."""
    scenario = FAMILY.make("", "homogeneous")
    still = replace(scenario.learn, learning_rate=1e-9)  # the policy stays as it is, so iterations are alike
    scenario = replace(scenario, learn=still, preload=(*scenario.preload, "benchmarks.hot_paths.half_metered"))
    meter = HalfMeteredRank(folder, 0, scenario.num_envs)
    context = Context(
        place=Place(rank=0, num_ranks=1, local_rank=0),
        scenario=scenario,
        device=CpuDevice(1),
        seed=0,
        budget=Limits(iterations=NUM_ITERATIONS),
        meter=meter,
        folder=str(folder),
        stall_s=60,
    )
    SPEC.run(context)
    meter.close()
    rows = [json.loads(line) for line in (folder / "series-rank0.jsonl").read_text().splitlines()]
    return [row["end_s"] - row["begin_s"] for row in rows]


def costs(seconds: list[float]) -> list[float]:
    """(on - off) / off of each block of four iterations, without the blocks that something else disturbed.

    A block is left out when it took more than twice the median block, whichever side that falls on.
    """
    blocks = [seconds[first : first + 4] for first in range(NUM_WARM_UP, len(seconds) - 3, 4)]
    usual = median(sum(block) for block in blocks)
    return [(on + again) / (off + more) - 1 for on, off, more, again in blocks if on + off + more + again < 2 * usual]


def bench_metering(benchmark: BenchmarkFixture) -> None:
    """The cost as a share of an iteration."""
    command = [sys.executable, "-m", "benchmarks.hot_paths.bench_metering"]
    found: list[float] = []

    def run() -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.extend(costs(json.loads(done.stdout)))

    benchmark.pedantic(run, rounds=1)  # type: ignore[no-untyped-call]  # the plugin leaves it untyped
    error = stdev(found) / math.sqrt(len(found))
    benchmark.extra_info.update(metering_cost_fraction=fmean(found), standard_error=error, num_blocks=len(found))
    print(f"\nmetering costs {fmean(found):+.2%} of an iteration (standard error {error:.2%}, {len(found)} blocks)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(iteration_seconds(Path(made))))
