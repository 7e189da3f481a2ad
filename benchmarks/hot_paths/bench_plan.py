"""Planning and listing 20,000 cells: the whole command, start-up included."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from tests.harness.runs import RLBENCH

WORDS = (
    "--systems",
    "sync,ddppo,ver,appo",
    "--gpus",
    "1..10",
    "--seeds",
    "0..499",
    "--device",
    "emulated",
    "--dry-run",
)
NUM_CELLS = 4 * 10 * 500


def bench_plan(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """`rlbench run --dry-run` of 20,000 cells; under 2 s is promised."""

    def plan() -> str:
        command = [str(RLBENCH), "run", *WORDS]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    said = benchmark.pedantic(plan, rounds=5, warmup_rounds=1)  # type: ignore[no-untyped-call]  # the plugin leaves it untyped
    assert f"{NUM_CELLS:,} cells" in said or len(said.splitlines()) >= NUM_CELLS
