"""The engine's own overhead on emulated GPUs: `nox -s bench -- overhead`.

Runs `ver` and `appo` on `open-fridge`, homogeneous and heterogeneous, on 1 to 8 emulated GPUs at time scale 1, and
records every reservation and step (`benchmarks.overhead.logged_gpu`). It prints the overhead that
`benchmarks.overhead.unused` finds, and the CPU use (100 % is one core) of all processes of the run and of harness and
engine alone, which leaves out environments' steps and the network: they stand for simulators and GPUs. The aims: at
most 5 % lost, and harness and engine under one core at 8 GPUs with 16 environments each. The figures include the
writing of records, about 2 % of a core there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.overhead.logged_run import overhead_of
from rlbench.results.records import store

ROOT = Path(__file__).resolve().parents[2]
MOST_LOST, MOST_CPU_PERCENT = 0.05, 100.0


def sweep(asked: argparse.Namespace, folder: Path) -> Path:
    """Runs the cells, with the family `logged` installed in a folder of its own; returns where the runs are."""
    info = folder / "site" / "rlbench_logged-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlbench-logged\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[rlbench.scenarios]\nlogged = benchmarks.overhead.logged_gpu:FAMILY\n", encoding="utf-8"
    )
    options = {
        "systems": asked.systems,
        "scenario": asked.scenario,
        "workload": asked.workload,
        "gpus": asked.gpus,
        "seconds": asked.seconds,
        "device": "emulated",
        "out": folder / "runs",
    }
    command = [str(Path(sys.executable).with_name("rlbench")), "run"]
    command += [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    paths = os.pathsep.join([str(info.parent), str(ROOT)])
    if code := subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": paths}).returncode:
        sys.exit(code)
    return folder / "runs"


def main() -> None:
    """Runs, works out, prints; exit code 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="ver,appo")
    parser.add_argument("--scenario", default="logged/open-fridge")
    parser.add_argument("--workload", default="homogeneous,heterogeneous")
    parser.add_argument("--gpus", default="1,2,4,8")
    parser.add_argument("--seconds", type=float, default=45, help="of training in each run")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as folder:
        runs = store.read_runs(sweep(asked, Path(folder)))
        columns = "GPUs  steps/s  looked at   lost: mean env, worst env, learner   CPU: all, harness and engine"
        print(f"\n{'system':12} {'workload':14} {columns}")
        kept = [_print_run(run) for run in runs]
    print(f"aims: at most {MOST_LOST:.0%} lost, and less than {MOST_CPU_PERCENT:.0f}% of a core for harness and engine")
    sys.exit(0 if all(kept) else 1)


def _print_run(run: store.StoredRun) -> bool:
    """Prints one run; returns whether it keeps the aims."""
    overhead, cell, figures = overhead_of(run), run.record.cell, run.record.figures
    learner = "   n/a" if overhead.learner is None else f"{overhead.learner:6.1%}"
    whole = figures.cpu_percent.value
    cpu = None if whole is None else whole - overhead.cpu_percent
    print(
        f"{cell.system:12} {cell.workload:14} {cell.gpus:4} {figures.steps_per_s or 0:8,.0f} "
        f"{overhead.seconds:8.0f} s  "
        f"{overhead.collecting:14.1%} {overhead.worst_env:10.1%}  {learner} {_percent(whole):>10} {_percent(cpu):>10}"
    )
    return overhead.largest <= MOST_LOST and (cpu is None or cpu < MOST_CPU_PERCENT)


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f}%"


if __name__ == "__main__":
    main()
