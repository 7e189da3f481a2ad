"""The report of a sweep of 100 runs: `nox -s bench -- report`, or `python -m benchmarks.hot_paths.bench_report`.

Runs one system on 2 emulated GPUs for some seconds, and makes from it a sweep of 100 runs (5 systems, 1 to 16 GPUs,
both workloads, 2 seeds), each with its spans, series and episodes. Then it times the whole command, from its start to
its end, with an empty cache. The aims: under 10 s, and a file under 8 MB.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from rlbench.results.records import store

RLBENCH = Path(sys.executable).with_name("rlbench")
SYSTEMS = ("sync", "ddppo", "nover", "ver", "appo")
GPUS = (1, 2, 4, 8, 16)
WORKLOADS = ("homogeneous", "heterogeneous")
SEEDS = (0, 1)
MOST_S, MOST_BYTES = 10.0, 8_000_000
ROUNDS = 5


def make_runs(folder: Path) -> int:
    """Makes the sweep; returns how many runs it has."""
    source = folder / "source"
    command = ("run", "--systems", "ver", "--gpus", "2", "--scenario", "emulated/open-fridge", "--device", "emulated")
    subprocess.run(
        [RLBENCH, *command, "--time-scale", "0.5", "--seconds", "20", "--out", source], check=True, capture_output=True
    )
    (run,) = store.read_runs(source)
    sweep = folder / "runs" / "20260101-000000-abcd"
    rate = run.record.figures.steps_per_s
    assert rate
    cells = list(itertools.product(SEEDS, WORKLOADS, GPUS, SYSTEMS))
    for number, (seed, workload, gpus, system) in enumerate(cells):
        fields = {"system": system, "gpus": gpus, "workload": workload, "seed": seed, "hash": f"cell-{number}"}
        name = f"{number:03d}-{system}-{workload}-x{gpus}-seed-{seed}"
        record = run.record.model_copy(
            update={
                "id": name,
                "sweep": sweep.name,
                "cell": run.record.cell.model_copy(update=fields),
                "figures": run.record.figures.model_copy(update={"steps_per_s": rate * gpus * (1 + number % 7 / 10)}),
                "started_at": f"2026-01-01T{number // 60:02d}:{number % 60:02d}:00+00:00",
            }
        )
        shutil.copytree(run.path, sweep / name)
        (sweep / name / store.RUN_FILE).write_text(record.model_dump_json(indent=1), encoding="utf-8")
    return len(cells)


def main() -> None:
    """Prints how long it takes and how large the file is; exit code 1 when an aim is missed."""
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as made:
        folder = Path(made)
        num_runs, out, seconds = make_runs(folder), folder / "report.html", []
        for number in range(ROUNDS):
            began = time.perf_counter()
            subprocess.run(
                [RLBENCH, "report", folder / "runs", "--out", out],
                env={**os.environ, "XDG_CACHE_HOME": str(folder / f"cache-{number}")},
                check=True,
                capture_output=True,
            )
            seconds.append(time.perf_counter() - began)
        size = out.stat().st_size
    took = f"median {median(seconds):.2f} s, {min(seconds):.2f} to {max(seconds):.2f} s (aim: {MOST_S:g})"
    print(f"{num_runs} runs: {took}; {size / 1e6:.2f} MB (aim: {MOST_BYTES / 1e6:g})")
    sys.exit(0 if median(seconds) < MOST_S and size < MOST_BYTES else 1)


if __name__ == "__main__":
    main()
