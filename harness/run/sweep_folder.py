"""The folder of a running sweep: runs of its cells are made in it, and get their names there.

The runner uses it for as long as the sweep runs. It holds the folder by its descriptor (`harness/processes/held.py`),
so the folder may be renamed meanwhile. A folder that was removed is made anew, with the plan, which is locked before
anybody sees it. A run that cannot get its name is kept in the folder for temporary files, and the error says where.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rlbench.harness.processes.held import Held
from rlbench.results.records import store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rlbench.harness.plan.cells import Cell
    from rlbench.harness.run.sweep import Sweep
    from rlbench.results.records.schema import RunRecord

KEPT_PREFIX = "rlbench-kept-"
"""Name prefix of the folders for what cannot be kept where it belongs."""
NO_ROOM = {*(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)}
"""Errors after which nothing can be written there; after any other the run has failed, and the sweep goes on."""


class CannotWrite(ValueError):  # noqa: N818  says what happened
    """Nothing can be written where the sweep is, so the sweep ends."""


class SweepFolder:
    """The folder; close it when the sweep is over."""

    def __init__(self, sweep: Sweep, say: Callable[[str], None]) -> None:
        """Holds the folder of the sweep; `say` tells the user where the folder is if that changes."""
        self._sweep, self._say = sweep, say
        self._held = Held(sweep.folder)
        self._locks: list[int] = []
        """Locks of plans that were written anew; `Sweep.lock` locks the first plan."""

    @property
    def path(self) -> Path:
        """A path that leads to the folder, wherever it is."""
        return self._held.path

    @property
    def shown(self) -> Path:
        """The folder's path as the user knows it, or where it is now if that has changed."""
        folder = self._sweep.folder
        return folder if self._held.is_at(folder) or folder.is_symlink() else self._held.where

    def begin(self, cell: Cell) -> str:
        """A free name for a run of the cell. Raises CannotWrite."""
        self._look()
        return self._sweep.run_name(cell, self.path)

    def unfinished(self, name: str) -> Path:
        """Path of the folder in which the run of that name is made."""
        return self.path / f"{store.PARTIAL_PREFIX}{name}"

    def leave(self, name: str, record: RunRecord) -> RunRecord:
        """Publishes a run that has nothing but its record. Raises CannotWrite."""
        named = self.unfinished(name)
        try:
            named.mkdir()
            with Held(named) as partial:
                try:
                    store.write_run(named, record)
                    store.publish(named, self.path / name)
                finally:
                    partial.remove([named])
        except OSError as error:
            raise self.cannot_write(error) from None
        except ValueError as error:
            raise CannotWrite(str(error)) from None
        return record

    def publish(self, partial: Held, record: RunRecord) -> None:
        """Writes the record into a run's folder and gives the folder its name, wherever it and the sweep's are by now.

        Raises CannotWrite, with the place where the run is kept instead.
        """
        try:
            self._look()
            store.write_run(partial.path, record)
            source = partial.where
            if os.fstat(partial.fd).st_dev != os.fstat(self._held.fd).st_dev:  # the run went on elsewhere
                source = self.unfinished(f"{record.id}-{secrets.token_hex(4)}")
                shutil.copytree(partial.path, source, ignore=_no_files)
            store.publish(source, self.path / record.id)
        except (OSError, ValueError) as error:
            raise CannotWrite(f"{error}; {self._kept(partial, record)}") from None

    @staticmethod
    def _kept(partial: Held, record: RunRecord) -> str:
        """Copies a run to the folder for temporary files; says where the copy is, or why there is none."""
        made = None
        try:
            made = Path(tempfile.mkdtemp(prefix=KEPT_PREFIX))
            shutil.copytree(partial.path, made / record.id, ignore=_no_files)
            store.write_run(made / record.id, record)
        except (OSError, ValueError) as error:
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
            return f"nor can it be kept in {tempfile.gettempdir()} ({error})"
        return f"the run is kept in {made / record.id}"

    def _look(self) -> None:
        """Makes the folder anew if somebody has removed it."""
        held = self._held
        if not held.is_gone:
            return
        old = held.where
        held.follow([old])  # if the keeper of a run has made it anew there
        try:
            held.make_anew(Path(tempfile.gettempdir(), f"{KEPT_PREFIX}{secrets.token_hex(8)}"))
            self._locks.append(self._sweep.write_locked_plan(held.path))
        except OSError as error:
            raise self.cannot_write(error) from None
        self._say(f"warning: {old} was removed while its sweep runs; its runs are kept in {held.where}")

    def cannot_write(self, error: OSError) -> CannotWrite:
        """The error to raise where nothing can be written."""
        return CannotWrite(f"{self._held.where}: cannot be written: {error.strerror or error}; earlier runs are kept")

    def close(self) -> None:
        """Closes the folder and the locks of its plans."""
        for lock in self._locks:
            os.close(lock)
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _no_files(folder: str, names: Iterable[str]) -> set[str]:
    """Names of what is not copied, since it is neither file nor folder: sockets and pipes that were left, and links."""
    kinds = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}  # noqa: PTH118  shutil gives texts
    return {name for name, mode in kinds.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))}
