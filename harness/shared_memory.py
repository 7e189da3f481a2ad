"""Names in /dev/shm, where POSIX shared memory lies: whether there is room for them, and which a run has left.

What a system shares with its environments has no name (`systems/engine/tables.py`) and needs no care. Simulators make
names; a scenario says so by two attributes that it need not have:

    shm_bytes: what the environments of one rank write there, in bytes
    shm_names: patterns of the names that they make, such as ("ViZDoom*",)

A simulator that is killed cannot remove its own. Those that a process of the run had mapped are removed with it, and
those that fit the scenario's patterns, are newer than the run and nobody's: a simulator may die before it has told
anybody. "Newer" is by the numbers of inodes, since clocks are set back.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from harness import process

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.plan import Cell

FOLDER = Path("/dev/shm")  # noqa: S108  where names of POSIX shared memory are
MIB = 2**20
NOBODYS_S = 0.3
"""A process that makes a name maps it within microseconds: what is mapped by nobody for so long is nobody's."""


def check_room(cells: Iterable[Cell], folder: Path = FOLDER) -> None:
    """Raises ValueError unless the simulators of every cell have room there; says how much they need."""
    known: dict[tuple[object, ...], int] = {}
    for cell in cells:
        key = (cell.scenario, cell.workload, *cell.scenario_settings.items())
        if key not in known:
            known[key] = getattr(cell.load()[1], "shm_bytes", 0) if cell.device != "predicted" else 0
        needed = cell.gpus * known[key]
        if needed and needed > (free := _free(folder)):
            raise ValueError(
                f"--gpus {cell.gpus} with {cell.scenario}: its environments need {needed / MIB:.1f} MiB in {folder}, "
                f"{free / MIB:.1f} MiB are free; remove old files there, or use fewer environments, or enlarge it "
                f"(mount -o remount,size=1g {folder}; docker run --shm-size=1g)"
            )


def _free(folder: Path) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """What was there before a run."""

    inodes: dict[str, int]
    """By path."""
    patterns: Sequence[str]
    """Of the names that the run's simulators make."""

    @classmethod
    def now(cls, scenario: object, folder: Path = FOLDER) -> Before:
        """What is there now, for a run on that scenario."""
        inodes = {}
        with suppress(FileNotFoundError):  # there may be none at all
            for path in folder.iterdir():
                with suppress(FileNotFoundError):
                    inodes[str(path)] = path.stat().st_ino
        return cls(inodes=inodes, patterns=getattr(scenario, "shm_names", ()))

    def leave(self, path: Path) -> None:
        """Writes it for whoever cleans up after the run."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Before:
        """Reads back what `leave` wrote."""
        return cls(**json.loads(path.read_text()))

    def remove_new(self, names: Iterable[str], folder: Path = FOLDER) -> None:
        """Removes what has come since and is the run's.

        Args:
            names: paths that processes of the run had mapped. What was there before, they had not made: it is
                somebody's data set.
            folder: where names of shared memory are.
        """
        for path in map(Path, names):
            if path.parent == folder and self._is_new(path):
                _remove(path)
        left = self._unmapped(folder)
        if left:
            time.sleep(NOBODYS_S)
            for path in left & self._unmapped(folder):
                _remove(path)

    def _is_new(self, path: Path) -> bool:
        with suppress(OSError):
            return path.stat().st_ino != self.inodes.get(str(path))
        return False

    def _unmapped(self, folder: Path) -> set[Path]:
        """New names of the simulators', and ours, that no process has mapped."""
        with suppress(FileNotFoundError):
            fitting = {
                path
                for path in folder.iterdir()
                if any(fnmatch(path.name, pattern) for pattern in self.patterns)
                and self._is_new(path)
                and _is_ours(path)
            }
            return fitting - _mapped() if fitting else fitting
        return set()


def _is_ours(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_uid == os.geteuid()
    return False


def _mapped() -> set[Path]:
    """Names that some process has mapped; of those that we may look into, which all are that can map ours."""
    mapped: set[Path] = set()
    for pid in psutil.pids():
        with suppress(OSError):
            mapped.update(map(Path, process.shared_memory_names(pid)))
    return mapped


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
