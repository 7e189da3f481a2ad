"""Listing and filtering 10,000 runs: `nox -s bench -- -k index -s`, or `python -m benchmarks.hot_paths.bench_index`.

Makes 500 sweeps of 20 run folders, with records and series as a run leaves them, and lists them once, which reads them
all. Then it times the whole command, from its start to its end. The aim: under 1 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.store import RUN_FILE
from tests.results.made_records import make_parts, write_series
from tests.results.summaries import make_run

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

RLBENCH = Path(sys.executable).with_name("rlbench")
NUM_SWEEPS = 500
SYSTEMS = ("sync", "ddppo", "nover", "ver", "appo")
GPUS = (1, 2, 4, 8)
NUM_ITERATIONS = 60
MOST_S = 1.0
COMMANDS = {
    "plain": (),
    "filtered": ("--where", "system=ver"),
    "filtered twice": ("--where", "system=ver", "--where", "gpus=8"),
}


def make_runs(folder: Path) -> int:
    """Makes the run folders; returns how many."""
    write_series(
        folder, [(0, p.iteration, p.begin_s, p.end_s, p.learned) for p in make_parts([100.0] * NUM_ITERATIONS)]
    )
    series = (folder / SERIES_FILE).read_bytes()
    number = 0
    for sweep in range(NUM_SWEEPS):
        for system in SYSTEMS:
            for gpus in GPUS:
                name = f"{number % 20:03d}-{system}-emulated-open-fridge-heterogeneous-x{gpus}-seed-0"
                record = make_run(
                    *(system, gpus),
                    id=name,
                    sweep=f"20260101-{sweep:06d}-abcd",
                    steps_per_s=100.0 * gpus,
                    started_at=f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}+00:00",
                )
                run = folder / record.sweep / name
                run.mkdir(parents=True)
                (run / RUN_FILE).write_text(record.model_dump_json(indent=1), encoding="utf-8")
                (run / SERIES_FILE).write_bytes(series)
                number += 1
    return number


def list_runs(folder: Path, cache: Path, *arguments: str) -> str:
    """Runs `rlbench results` as a process of its own; returns what it prints."""
    done = subprocess.run(
        [RLBENCH, "results", folder, *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The runs, and a cache that knows them."""
    folder, cache = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("cache")
    make_runs(folder)
    list_runs(folder, cache)
    return folder, cache


@pytest.mark.parametrize("command", COMMANDS)
def bench_index(benchmark: BenchmarkFixture, folders: tuple[Path, Path], command: str) -> None:
    """The whole command, once the cache knows the runs."""
    benchmark.pedantic(list_runs, args=(*folders, *COMMANDS[command]), rounds=7)  # type: ignore[no-untyped-call]  # the plugin leaves it untyped


def main() -> None:
    """Prints how long each command takes; exit code 1 when one misses the aim."""
    kept = True
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as made:
        folder, cache = Path(made, "runs"), Path(made, "cache")
        folder.mkdir()
        num_runs = make_runs(folder)
        began = time.perf_counter()
        list_runs(folder, cache)
        print(f"{num_runs:,} runs; the first time {time.perf_counter() - began:.1f} s")
        for name, arguments in COMMANDS.items():
            seconds = []
            for _ in range(7):
                began = time.perf_counter()
                printed = list_runs(folder, cache, *arguments)
                seconds.append(time.perf_counter() - began)
            print(f"{name:15} median {median(seconds):.2f} s, {min(seconds):.2f} to {max(seconds):.2f} s")
            assert "(emulated)" in printed
            kept &= median(seconds) < MOST_S
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
