"""What preemption gains on emulated GPUs, measured and predicted: `python -m benchmarks.hot_paths.bench_preemption`.

Runs `ddppo` with p = 0.6 and p = 1.0 in one interleaved sweep (both with the first seed, then both with the second),
and compares each run with the prediction of the same iterations with the same draws. Iteration 0 is the warm-up in
both. It takes about as long as the profile says: a quarter of an hour with the defaults. Nothing else should run on
the machine.
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
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlbench.harness.predicting.planning import predict_cell
from rlbench.harness.run.sweep import Sweep
from rlbench.results.records import store
from rlbench.results.records.parts import SERIES_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rlbench.harness.plan.cells import Cell

SYSTEMS = {"ddppo": 0.6, "ddppo:preempt.p=1.0": 1.0}
SCENARIO = "emulated/open-fridge"
WARM_UP = 1
"""Iterations that are not counted."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One run and its prediction."""

    p: float
    seed: int
    measured: float
    """Env steps per second, after the warm-up."""
    predicted: float
    """The same, predicted for the same iterations."""

    def __str__(self) -> str:
        error = self.measured / self.predicted - 1
        return f"p={self.p:.1f} seed {self.seed}: {self.measured:6.0f} {self.predicted:8.0f} {error:+8.1%}"


def steps_per_s(series: Iterable[Mapping[str, float]]) -> float:
    """Steps/s from the time series of all ranks, which begin and end an iteration together."""
    counted = [row for row in series if row["iteration"] >= WARM_UP]
    seconds = max(row["end_s"] for row in counted) - min(row["begin_s"] for row in counted)
    return sum(row["learned"] for row in counted) / seconds


def compare(folder: Path, cell: Cell) -> Compared:
    """Compares a run with its prediction."""
    measured: list[dict[Any, Any]] = pd.read_parquet(folder / SERIES_FILE).to_dict("records")
    p = float(cell.system_settings.get("preempt.p", SYSTEMS["ddppo"]))
    return Compared(p, cell.seed, steps_per_s(measured), steps_per_s(predict_cell(cell).rows))


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
        print(f"\niterations {WARM_UP} to {arguments.iterations - 1}: steps/s measured, predicted, error")
        cells = {cell.hash(): cell for cell in Sweep.newest(out).cells}
        for run in store.read_runs(out):
            compared = compare(run.path, cells[run.record.cell.hash])
            rates[compared.p].append(compared)
            print(compared)
    print("\np=0.6 against p=1.0: ratio measured, predicted, error")
    for cut, whole in zip(*rates.values(), strict=True):
        assert cut.seed == whole.seed
        measured, predicted = cut.measured / whole.measured, cut.predicted / whole.predicted
        print(f"seed {cut.seed}: {measured:.3f} {predicted:.3f} {measured / predicted - 1:+.1%}")


if __name__ == "__main__":
    main()
