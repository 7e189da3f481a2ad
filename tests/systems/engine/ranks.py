"""Ranks for tests: real processes with the variables that our launcher sets, running a function or a whole cell.

`python -m tests.systems.engine.ranks MODULE FUNCTION FOLDER` is what each of them runs, in a process that has imported
torch (`zygote.py`). Imports no torch: the environment workers of a cell may come through here.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlbench.harness.contract.budget import Limits
from rlbench.harness.launch.local import listen, rank_variables
from rlbench.harness.launch.rank import PARENT_VARIABLE
from rlbench.harness.metering.counted import episodes_path
from rlbench.harness.metering.fates import Fates, fates_path, read_fates
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.harness.plan.cells import Cell
from rlbench.harness.processes import process
from tests.systems.engine import zygote
from tests.systems.engine.zygote import Forked

ROOT = Path(__file__).parents[3]
LIMIT_S = 120.0
"""What has not ended by then, on however slow a machine, hangs."""
PORT, STORE = "RLBENCH_TEST_PORT", "RLBENCH_TEST_STORE"
"""Variables: where the store of a group listens, and what descriptor of rank 0's that is; a number follows."""
TIMES = ("begin_s", "end_s", "gpu_busy_s", "core_wait_s", "span/")


def run_ranks(function: Callable[[Path], None], num_ranks: int, folder: Path, num_groups: int = 1) -> None:
    """Calls a function of a module with `folder` on every rank; raises AssertionError with what they printed.

    `num_groups`: of process groups that they may make, one after the other, with `join_group`.
    """
    _run(words_for(function, folder), num_ranks, num_groups)


def words_for(function: Callable[[Path], None], folder: Path) -> list[str]:
    """What `python -m` is to run, for that function to be called."""
    return [__name__, function.__module__, function.__name__, str(folder)]


def start_ranks(words: Sequence[str], num_ranks: int, num_groups: int = 1) -> list[Forked]:
    """Starts `python -m WORDS` on every rank; both streams of each are one pipe.

    Where the store of each group listens is open from now on, so that nobody else may take the port meanwhile.
    """
    started = []
    with ExitStack() as stack:
        stores = [stack.enter_context(listen()) for _ in range(num_groups)]
        ports = {f"{PORT}{number}": str(store.getsockname()[1]) for number, store in enumerate(stores)}
        files = {f"{STORE}{number}": store.fileno() for number, store in enumerate(stores)}
        files[process.STORE_VARIABLE] = stores[0].fileno()
        for rank in range(num_ranks):
            variables = os.environ | rank_variables(rank, num_ranks, stores[0]) | ports
            del variables[PARENT_VARIABLE]  # the zygote sees to that
            started.append(zygote.start(words, variables, {} if rank else files))
    return started


def join_group(number: int, per_machine: int) -> None:
    """What the next group is made of, in a rank: its store, and how many of the ranks it is told are on a machine."""
    rank = int(os.environ["RANK"])
    os.environ |= {"LOCAL_RANK": str(rank % per_machine), "LOCAL_WORLD_SIZE": str(per_machine)}
    os.environ["MASTER_PORT"] = os.environ[f"{PORT}{number}"]
    if rank == 0:
        os.environ[process.STORE_VARIABLE] = os.environ[f"{STORE}{number}"]


def _run(words: Sequence[str], num_ranks: int, num_groups: int = 1) -> None:
    ranks = start_ranks(words, num_ranks, num_groups)
    try:
        outputs = [rank.communicate(timeout=LIMIT_S)[0].decode() for rank in ranks]
    finally:
        for rank in ranks:
            rank.close()
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

    def fates(self, rank: int) -> Fates | None:
        """What a rank that learns counted of each environment; None of one that does not learn."""
        return read_fates(fates_path(self.folder, rank))

    def episodes(self, rank: int) -> bytes:
        """The episodes of a rank: records of `harness.metering.counted.EPISODE`."""
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
    _run(["rlbench.harness.launch.rank", str(run.folder)], cell.gpus)
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
    os._exit(0)  # as `harness.launch.rank` ends
