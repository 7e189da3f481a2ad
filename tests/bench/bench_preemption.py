"""What preemption gains on emulated GPUs, measured and on paper: `python -m tests.bench.bench_preemption`.

Runs `ddppo` with p = 0.6 and p = 1.0 in one interleaved sweep (p = 0.6 and 1.0 of the first seed, then of the second),
and holds each run against `tests.bench.paper` with the same draws. Iteration 0 is the warm-up in both. It takes about
as long as the profile says, a quarter of an hour at time scale 1 as it comes; nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from harness.registry import load_scenario
from results import store
from scenarios.emulated import EmulatedScenario
from tests.bench import paper

if TYPE_CHECKING:
    from results.schema import Cell

SYSTEMS = {"ddppo": 0.6, "ddppo:preempt.p=1.0": 1.0}
SCENARIO = "emulated/open-fridge"
WARM_UP = 1
"""Iterations."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One run."""

    p: float
    seed: int
    measured: float
    """Env steps per second, after the warm-up."""
    on_paper: float
    """The same, of the same iterations."""

    def __str__(self) -> str:
        error = self.measured / self.on_paper - 1
        return f"p={self.p:.1f} seed {self.seed}: {self.measured:6.0f} {self.on_paper:8.0f} {error:+8.1%}"


def measured_steps_per_s(folder: Path) -> float:
    """From the time series of a run: all ranks begin and end an iteration together."""
    series = pd.read_parquet(folder / "series.parquet")
    counted = series[series["iteration"] >= WARM_UP]
    return float(counted["learned"].sum() / (counted["end_s"].max() - counted["begin_s"].min()))


def compare(folder: Path, cell: Cell, num_iterations: int, time_scale: float) -> Compared:
    """A run and its model."""
    scenario = load_scenario(SCENARIO, cell.workload, {"time_scale": str(time_scale)})
    assert isinstance(scenario, EmulatedScenario)
    p = float(cell.settings.get("preempt.p", SYSTEMS["ddppo"]))
    iterations = paper.predict(scenario, num_ranks=cell.gpus, seed=cell.seed, p=p, num_iterations=num_iterations)
    return Compared(p, cell.seed, measured_steps_per_s(folder), paper.steps_per_s(iterations[WARM_UP:]))


def sweep(arguments: argparse.Namespace, out: Path) -> None:
    """Runs the cells."""
    command = [str(Path(sys.executable).with_name("rlbench")), "run", "--systems", ",".join(SYSTEMS)]
    options = {
        "scenario": SCENARIO,
        "workload": arguments.workload,
        "gpus": arguments.gpus,
        "seeds": arguments.seeds,
        "iterations": arguments.iterations,
        "time-scale": arguments.time_scale,
        "device": "emulated",
        "out": out,
    }
    command += [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    print(*command, f"(load before: {os.getloadavg()[0]:.2f})", flush=True)
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(code)
    print(f"load after: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")


def main() -> None:
    """Runs, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--workload", default="heterogeneous")
    parser.add_argument("--time-scale", type=float, default=1.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as folder:
        out = Path(folder) / "runs"
        sweep(arguments, out)
        rates: dict[float, list[Compared]] = defaultdict(list)
        print(f"\niterations {WARM_UP} to {arguments.iterations - 1}: steps/s measured, on paper, error")
        for run in store.read_runs(out):
            compared = compare(run.path, run.record.cell, arguments.iterations, arguments.time_scale)
            rates[compared.p].append(compared)
            print(compared)
    print("\np=0.6 against p=1.0: ratio measured, on paper, error")
    for cut, whole in zip(*rates.values(), strict=True):
        assert cut.seed == whole.seed
        measured, on_paper = cut.measured / whole.measured, cut.on_paper / whole.on_paper
        print(f"seed {cut.seed}: {measured:.3f} {on_paper:.3f} {measured / on_paper - 1:+.1%}")


if __name__ == "__main__":
    main()
