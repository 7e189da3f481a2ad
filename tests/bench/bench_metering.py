"""What metering costs: `sync` on `pointnav`, the fastest scenario, with metering on against off, in turn (A B B A).

`python -m tests.bench.bench_metering on` runs one side: it prints the seconds of each iteration after the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from harness.budget import Limits
from harness.contract import Context, Place
from harness.devices import CpuDevice
from harness.meter import RankMeter
from scenarios.pointnav import FAMILY
from systems.sync.spec import SPEC

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

NUM_ITERATIONS = 24
NUM_TURNS = 4


class UnmeteredRank(RankMeter):
    """A meter that times no spans."""

    def span(self, kind: str) -> AbstractContextManager[None]:  # type: ignore[override]  # any context will do
        """Does nothing."""
        del kind
        return nullcontext()


def run_side(side: str, folder: Path) -> list[float]:
    """Seconds of each iteration but the first."""
    scenario = FAMILY.make("", "homogeneous")
    if side == "off":
        scenario = replace(scenario, preload=(*scenario.preload, "tests.bench.unmetered"))
    kind = UnmeteredRank if side == "off" else RankMeter
    context = Context(
        place=Place(rank=0, num_ranks=1, local_rank=0),
        scenario=scenario,
        device=CpuDevice(1),
        seed=0,
        budget=Limits(iterations=NUM_ITERATIONS),
        meter=kind(folder, 0, scenario.num_envs),
        folder=str(folder),
        stall_s=60,
    )
    SPEC.run(context)
    context.meter.close()
    rows = [json.loads(line) for line in (folder / "series-rank0.jsonl").read_text().splitlines()]
    return [row["end_s"] - row["begin_s"] for row in rows[1:]]


def time_side(side: str) -> float:
    """Median seconds of an iteration, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.bench_metering", side], capture_output=True, text=True, check=True
    )
    seconds: list[float] = json.loads(done.stdout)
    return median(seconds)


def bench_metering(benchmark: BenchmarkFixture) -> None:
    """The median over turns of (on - off) / off."""
    costs = []

    def turn() -> None:
        on, off, off_again, on_again = (time_side(side) for side in ("on", "off", "off", "on"))
        costs.append((on + on_again) / (off + off_again) - 1)

    benchmark.pedantic(turn, rounds=NUM_TURNS)  # type: ignore[no-untyped-call]  # the plugin leaves it untyped
    benchmark.extra_info["metering_cost_fraction"] = median(costs)
    print(f"\nmetering costs {median(costs):.2%} of an iteration; turns: {', '.join(f'{cost:.2%}' for cost in costs)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(run_side(sys.argv[1], Path(made))))
