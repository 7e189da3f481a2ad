"""Ranks for tests: real processes with the variables that our launcher sets, running a function or a whole cell.

`python -m tests.systems.engine.ranks MODULE FUNCTION FOLDER` is what each of them runs. Imports no torch: the
environment workers of a cell may come through here.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.budget import Limits
from harness.counted import episodes_path
from harness.launch.local import listen, rank_variables
from harness.meter import MeterFile, meter_path
from harness.plan import Cell

ROOT = Path(__file__).parents[3]
LIMIT_S = 120.0
"""What has not ended by then, on however slow a machine, hangs."""
TIMES = ("begin_s", "end_s", "gpu_busy_s", "core_wait_s", "span/")


def run_ranks(function: Callable[[Path], None], num_ranks: int, folder: Path, per_machine: int = 0) -> None:
    """Calls a function of a module with `folder` on every rank; raises AssertionError with what they printed.

    `per_machine`: ranks are told that so many of them are on each machine; 0: all on one.
    """
    command = [sys.executable, "-m", __name__, function.__module__, function.__name__, str(folder)]
    _run(command, num_ranks, per_machine)


def start_ranks(command: Sequence[str], num_ranks: int, per_machine: int = 0) -> list[subprocess.Popen[bytes]]:
    """Starts a command on every rank; both streams of each are one pipe."""
    local = per_machine or num_ranks
    with listen() as store:
        return [
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ
                | rank_variables(rank, num_ranks, store)
                | {"LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local)},
                pass_fds=() if rank else (store.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for rank in range(num_ranks)
        ]


def _run(command: Sequence[str], num_ranks: int, per_machine: int = 0) -> None:
    ranks = start_ranks(command, num_ranks, per_machine)
    try:
        outputs = [rank.communicate(timeout=LIMIT_S)[0].decode() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    codes = [rank.returncode for rank in ranks]
    assert not any(codes), f"exit codes {codes}\n" + "\n".join(outputs)


@dataclass(frozen=True, slots=True)
class Run:
    """What the ranks of a cell have left in its folder."""

    folder: Path

    def rows(self, rank: int) -> list[dict[str, Any]]:
        """The time series of a rank."""
        return [json.loads(line) for line in (self.folder / f"series-rank{rank}.jsonl").read_text().splitlines()]

    def statistics(self, rank: int) -> list[dict[str, Any]]:
        """The time series of a rank without its times."""
        return [{key: row[key] for key in row if not key.startswith(TIMES)} for row in self.rows(rank)]

    def meter(self, rank: int) -> MeterFile:
        """The counters of a rank."""
        return MeterFile(meter_path(self.folder, rank), writable=False)

    def episodes(self, rank: int) -> bytes:
        """The episodes of a rank: records of `harness.counted.EPISODE`."""
        return episodes_path(self.folder, rank).read_bytes()

    def weights(self) -> dict[str, Any]:
        """The policy at the end."""
        import torch

        weights: dict[str, Any] = torch.load(self.folder / "policy.pt")
        return weights


def run_cell(folder: Path, name: str, scenario: str, scenario_settings: dict[str, str], **fields: Any) -> Run:
    """Runs the ranks of a cell in a new folder, without the harness around them; 3 iterations unless told else."""
    defaults: dict[str, Any] = {
        "system": "sync",
        "workload": "homogeneous",
        "gpus": 1,
        "seed": 0,
        "device": "cpu",
        "protocol": "steady",
        "limits": Limits(iterations=3),
        "stall_s": 60.0,
        "time_limit_s": LIMIT_S,
    }
    cell = Cell(scenario=scenario, scenario_settings=scenario_settings, **(defaults | fields))
    cell.load()
    run = Run(folder / name)
    run.folder.mkdir()
    (run.folder / "cell.json").write_text(cell.to_json())
    _run([sys.executable, "-m", "harness.rank", str(run.folder)], cell.gpus)
    return run


def same_weights(run: Run, other: Run) -> bool:
    """Whether the weights of two runs are equal to the bit."""
    ours, theirs = run.weights(), other.weights()
    return ours.keys() == theirs.keys() and all(
        weight.numpy().tobytes() == theirs[name].numpy().tobytes() for name, weight in ours.items()
    )


if __name__ == "__main__":
    module, name, folder = sys.argv[1:]
    getattr(importlib.import_module(module), name)(Path(folder))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # as `harness.rank` ends
