"""A sweep on disk: one folder that holds the plan and a folder for each run.

Whoever writes the plan writes `live.json` before it (`harness/live/state.py`), which says that a process runs the sweep
or is about to; that process removes it in the end.

The runner holds a lock on the plan (`flock`, which the kernel frees when the runner dies) while it runs cells. So two
runners never work on one sweep, and a `.partial-…` folder in an unlocked sweep is left over from a killed runner.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.launch.nodes.launches import Launch, Slurm, launch_of
from rlbench.harness.live.state import LIVE_FILE, LiveSweep, write_live
from rlbench.harness.machine import machine
from rlbench.harness.plan.cells import Cell
from rlbench.harness.processes.leftovers import remove_files
from rlbench.harness.processes.removal import inside, open_lock, opened_folder, remove_folder
from rlbench.results.reading import outputs
from rlbench.results.reading.untrusted import PLAN_BYTES, read_json, visible
from rlbench.results.records import store
from rlbench.results.records.schema import SweepFileRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PLAN_FILE = "sweep.json"
STAMP = "%Y%m%d-%H%M%S"
KEEPER_LIMIT_S = 30.0
"""Seconds to wait for a keeper whose harness was killed; it ends its run within a few."""


def begun(folder: Path) -> tuple[str, int]:
    """When a sweep was begun, by its folder, to compare with others: for all that take "the newest sweep".

    By the second in the name, which a copy keeps, then by when the plan was written; a folder of runs that has no plan
    counts as written when it last changed.
    """
    plan = folder / PLAN_FILE
    return folder.name.rpartition("-")[0], (plan if plan.exists() else folder).stat().st_mtime_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """The cells of a sweep, in order, and its folder."""

    folder: Path
    cells: tuple[Cell, ...]
    command: tuple[str, ...]
    """The command line that planned it."""
    launch: Launch | Slurm | None = None
    """The machines that its runs are spread over; None: only the one that the harness is on."""
    sweep_file: SweepFileRecord | None = None
    """The file that its options came from, or were saved in."""

    @property
    def id(self) -> str:
        """Its name: when it began (UTC), and four random hex digits."""
        return self.folder.name

    @classmethod
    def create(
        cls,
        out: Path,
        cells: Sequence[Cell],
        command: Sequence[str],
        launch: Launch | Slurm | None = None,
        sweep_file: SweepFileRecord | None = None,
    ) -> Sweep:
        """Makes the folder, and writes that this process starts the sweep, and then the plan.

        Raises ValueError when it cannot be written.
        """
        store.check_writable(out)
        folder = out / f"{_stamp_after(out):{STAMP}}-{secrets.token_hex(2)}"
        sweep = cls(folder=folder, cells=tuple(cells), command=tuple(command), launch=launch, sweep_file=sweep_file)
        try:
            folder.mkdir(parents=True)
            write_live(folder, LiveSweep.begins(len(cells)))
            store.write_whole(folder / PLAN_FILE, sweep._plan)
        except OSError as error:
            with suppress(OSError):
                (folder / LIVE_FILE).unlink()
            raise ValueError(f"--out {out}: cannot be written: {error.strerror}; name another folder") from None
        return sweep

    @property
    def _plan(self) -> str:
        plan: dict[str, Any] = {"command": list(self.command), "cells": [asdict(cell) for cell in self.cells]}
        if self.launch is not None:
            plan["launch"] = asdict(self.launch)
        if self.sweep_file is not None:
            plan["sweep_file"] = self.sweep_file.model_dump()
        return json.dumps(plan, indent=1)

    def write_locked_plan(self, folder: Path) -> int:
        """Writes the plan into a folder made anew; returns its lock, which the caller closes. Raises OSError."""
        if not os.path.lexists(folder / LIVE_FILE):
            write_live(folder, LiveSweep.begins(len(self.cells)))
        with outputs.whole(folder / PLAN_FILE) as file:
            file.write(self._plan.encode())
            lock = os.dup(file.fileno())
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock

    @classmethod
    def newest(cls, out: Path) -> Sweep:
        """The sweep in `out` that was begun last. Raises ValueError when there is none."""
        folders = [plan.parent for plan in out.glob(f"*/{PLAN_FILE}")]
        if not folders:
            raise ValueError(f"--resume: {out} holds no sweep; leave --resume out, or name its folder with --out")
        folder = max(folders, key=begun)
        if folder.is_symlink() and not folder.resolve().is_relative_to(out.resolve()):
            raise ValueError(
                f"--resume: {visible(str(folder))} is a link that leads out of {out}; remove it, or give the folder in "
                "which its sweep lies with --out"
            )
        return cls.read((folder.resolve() if folder.is_symlink() else folder) / PLAN_FILE)

    @classmethod
    def read(cls, path: Path) -> Sweep:
        """Reads the sweep from its plan at `path`. Raises ValueError when the plan is damaged."""
        try:
            plan = read_json(path, PLAN_BYTES)
            cells, command = _cells_of(plan["cells"]), tuple(map(str, plan["command"]))
            launch, sweep_file = launch_of(plan.get("launch")), _sweep_file_of(plan.get("sweep_file"))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: is damaged ({error}); run the sweep again without --resume") from None
        return cls(folder=path.parent, cells=cells, command=command, launch=launch, sweep_file=sweep_file)

    @property
    def plan_file(self) -> Path:
        """Path of its plan."""
        return self.folder / PLAN_FILE

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the sweep for this process. Raises ValueError when another process runs it."""
        try:
            file = open_lock(self.plan_file, create=False)  # opened for writing, as network file systems want of locks
        except OSError as error:
            raise ValueError(f"{self.folder}: cannot be written: {error.strerror}; copy it elsewhere") from None
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"{self.folder}: another rlbench is running this sweep; wait for it, or stop it"
                ) from None
            yield
        finally:
            os.close(file)

    def remove_partial(self, number: int | None = None) -> int:
        """Removes folders that killed runs left, of all cells or of one; returns how many. Call it with the lock held.

        Waits for the keeper of a run whose harness was killed a moment ago; raises ValueError when it does not end.
        """
        of_cell = "" if number is None else f"{1 + number:03d}-"
        left = [path for path in self.folder.glob(f"{store.PARTIAL_PREFIX}{of_cell}*") if _is_folder(path)]
        for folder in left:
            try:
                with opened_folder(folder) as descriptor:
                    _wait_until_free(descriptor, folder)
                    remove_files(inside(descriptor))
                    remove_folder(folder, descriptor)
            except OSError as error:
                raise ValueError(f"{folder}: cannot be removed: {error.strerror}; remove it") from None
        return len(left)

    def strangers(self) -> list[Path]:
        """Paths that are named like unfinished runs but are not folders themselves; they are left alone."""
        return sorted(path for path in self.folder.glob(f"{store.PARTIAL_PREFIX}*") if not _is_folder(path))

    def finished(self) -> set[str]:
        """Hashes of the cells that have a finished run; a run that cannot be read does not count."""
        runs, _ = store.read_readable(self.folder)
        return {run.record.cell.hash for run in runs if run.record.status == "finished"}

    def run_name(self, cell: Cell, folder: Path | None = None) -> str:
        """A free, readable name for a run of the cell; `folder` is where the sweep's folder is, if not at its path."""
        number = 1 + self.cells.index(cell)
        slug = re.sub(r"[^a-zA-Z0-9.=]+", "-", cell.label.replace(" x", "-x")).strip("-")
        name = f"{number:03d}-{slug}"[:120]
        here = folder or self.folder
        tries = len(list(here.glob(f"{name}*")))
        while os.path.lexists(here / f"{store.PARTIAL_PREFIX}{_try(name, tries)}"):
            tries += 1  # something has that name that is no run's, and is left alone
        return _try(name, tries)


def _try(name: str, tries: int) -> str:
    return f"{name}-try{tries + 1}" if tries else name


def _is_folder(path: Path) -> bool:
    """Whether the path is a folder itself, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _stamp_after(out: Path) -> datetime:
    """Now, or a second after the newest sweep in `out`: the clock may have been set back, and names order sweeps."""
    now = machine.now()
    stamps = []
    for plan in out.glob(f"*/{PLAN_FILE}"):
        with suppress(ValueError, OverflowError):  # a folder that somebody named otherwise
            stamp = datetime.strptime(plan.parent.name.rpartition("-")[0], STAMP).replace(tzinfo=UTC)
            stamps.append(stamp + timedelta(seconds=1))
    return max(now, *stamps) if stamps else now


def _cells_of(plan: Iterable[object]) -> tuple[Cell, ...]:
    """The cells as they were planned. Raises ValueError or TypeError where a field is missing, unknown or mistyped."""
    from pydantic import TypeAdapter, ValidationError

    texts = [json.dumps(cell) for cell in plan]
    types = TypeAdapter(Cell)
    try:
        for text in texts:
            types.validate_json(text, strict=True)
    except ValidationError as problem:
        first = problem.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'a cell'}: {first['msg']}") from None
    return tuple(map(Cell.from_json, texts))  # not the validated cells, in which a limit of 60 becomes 60.0


def _sweep_file_of(plan: object) -> SweepFileRecord | None:
    """The sweep file that a plan names. Raises ValueError where that is damaged."""
    from pydantic import ValidationError

    try:
        return None if plan is None else SweepFileRecord.model_validate(plan)
    except ValidationError as problem:
        first = problem.errors()[0]
        raise ValueError(f"sweep_file.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _wait_until_free(descriptor: int, folder: Path) -> None:
    """Locks the open folder; blocks while another process has it locked, for at most `KEEPER_LIMIT_S`."""
    deadline = time.monotonic() + KEEPER_LIMIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ValueError(f"{folder}: a process of a killed rlbench still works in it; end it first") from None
            time.sleep(0.1)
        else:
            return
