"""The main function of a rank: `python -m rlbench.harness.launch.rank FOLDER`, with torchrun's variables set.

It reads the run's `cell.json`, makes the context of the contract, and runs the system. If any of this raises, the rank
leaves the error in `error-rank<k>.json` for the keeper, and exits with 1. On SIGUSR1 a thread writes its stack.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.harness.contract.agents import num_rows
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.system import Context
from rlbench.harness.contract.traits import Traits
from rlbench.harness.devices.emulated_gpu import EmulatedGpu
from rlbench.harness.devices.kinds import make_device
from rlbench.harness.metering.meter import RankMeter
from rlbench.harness.metering.window import PROTOCOLS
from rlbench.harness.plan.cells import Cell
from rlbench.harness.processes import process, raised
from rlbench.harness.processes.held import CELL_FILE

if TYPE_CHECKING:
    from rlbench.harness.contract.system import System

PARENT_VARIABLE = "RLBENCH_PARENT"
"""Process number of the launcher, which this rank must not outlive. It is `UNDER_TORCHRUN` under a torchrun that we
started: ranks must not outlive it, and their output goes to files in the folder. Absent under any other torchrun."""
UNDER_TORCHRUN = "torchrun"


def main(folder: Path) -> int:
    """Runs one rank of the run in `folder`; returns the exit code."""
    place = Place.from_environment()
    match os.environ.get(PARENT_VARIABLE):
        case None:
            pass
        case "torchrun":
            process.die_with_parent(os.getppid())
            _write_to_files(folder, place.rank)
        case parent:
            process.die_with_parent(int(parent))
    process.sleep_precisely()
    process.dump_stacks_on_signal(folder / f"stacks-rank{place.rank}.txt")
    try:
        run(folder, place)
    except BaseException as error:  # noqa: BLE001  whatever ends a system is the run's reason, even sys.exit("...")
        print(raised.whole(error), end="", file=sys.stderr)  # noqa: T201  this process's stderr is part of the record
        ends = issubclass(type(error), raised.EndsTheRun)
        process.leave_error(folder / f"error-rank{place.rank}.json", error, ends_the_run=ends)
        return 1
    return 0


def _write_to_files(folder: Path, rank: int) -> None:
    """Redirects what this process prints to `rank<k>.out` and `rank<k>.err`."""
    for stream, suffix in ((1, "out"), (2, "err")):
        with (folder / f"rank{rank}.{suffix}").open("ab") as file:
            os.dup2(file.fileno(), stream)


def run(folder: Path, place: Place) -> None:
    """Makes the context and gives it to the system."""
    system, context = open_context(folder, place)
    with context.meter.span("other"):
        system.run(context)
    context.meter.close()


def open_context(folder: Path, place: Place) -> tuple[System, Context]:
    """The system of the run in `folder`, and its context on one rank; the caller closes the meter."""
    cell = Cell.from_json((folder / CELL_FILE).read_text(encoding="utf-8"))
    system, scenario = cell.load()
    python = ""
    if Traits.of(system).library is not None:
        from rlbench.harness.plan.libraries import python_of

        python = python_of(system)
    device = make_device(cell.device, place, scenario, folder)
    gpu_busy_s = device.busy_s if isinstance(device, EmulatedGpu) else None
    still = PROTOCOLS[cell.protocol].still
    meter = RankMeter(folder, place.rank, num_rows(scenario), gpu_busy_s, still=still)
    return system, Context(
        place=place,
        scenario=scenario,
        device=device,
        seed=cell.seed,
        budget=cell.limits,
        meter=meter,
        folder=str(folder),
        stall_s=cell.stall_s,
        python=python,
    )


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # so that no library delays or aborts this rank's end: other ranks may wait for it, or be gone
