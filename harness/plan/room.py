"""Checks that /dev/shm has room for what a sweep's simulators write there (`harness/processes/shared_memory.py`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rlbench.harness.processes.raised import told_in_a_line
from rlbench.harness.processes.shared_memory import FOLDER, names_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rlbench.harness.plan.cells import Cell

MIB = 2**20


def check_room(cells: Iterable[Cell], folder: Path = FOLDER) -> None:
    """Raises ValueError unless the simulators of every cell have room in `folder`; says how much they need.

    Also raises ValueError for a scenario whose `shm_bytes` or `shm_names` is invalid.
    """
    known: dict[tuple[object, ...], int] = {}
    for cell in cells:
        key = (cell.scenario, cell.workload, *cell.scenario_settings.items())
        if key not in known:
            known[key] = _needs(cell) if cell.device != "predicted" else 0
        needed = cell.gpus * known[key]
        if needed and needed > (free := _free(folder)):
            raise ValueError(
                f"--gpus {cell.gpus} with {cell.scenario}: its environments need {needed / MIB:.1f} MiB in {folder}, "
                f"{free / MIB:.1f} MiB are free; remove old files there, or use fewer environments, or enlarge it "
                f"(mount -o remount,size=1g {folder}; docker run --shm-size=1g)"
            )


def _needs(cell: Cell) -> int:
    """Bytes that the environments of one rank write to shared memory."""
    _, scenario = cell.load()
    names_of(scenario)
    with told_in_a_line(f"shm_bytes of {cell.scenario}"):
        needed = getattr(scenario, "shm_bytes", 0)
    if type(needed) is not int or needed < 0:
        raise ValueError(f"shm_bytes of {cell.scenario} must be a whole number of bytes, is {shown(needed)}")
    return needed


def _free(folder: Path) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
