"""Folders that are held by descriptors, so that work goes on in them when somebody renames or removes them meanwhile.

Who holds: the runner the folders of the sweep and of the run, the keeper the run's once more, each for itself. The path
of a held folder is `/proc/PID/fd/N`, which every process below opens like any other, whatever the folder is called by
then. Where the folder was removed, the keeper makes it anew, under its name or else in the folder for temporary files,
and has the same descriptor, and with it the same path, lead there: what is opened from then on is written. What was
open already lives on without a name until the last process closes it; the keeper opens it once more, through /proc,
and copies it when all have ended. What had been written and closed is lost. Nothing here blocks.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.processes.removal import remove_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CELL_FILE = "cell.json"
"""The first file of a run's folder: where it is missing, somebody has removed what was in the folder."""
DELETED = " (deleted)"
"""What the kernel appends to the name of a file that has none any more."""


def elsewhere(scratch: Path) -> Path:
    """Where a run goes on whose place is gone: beside its folder for temporary files, which its keeper removes."""
    return scratch.with_name(f"{scratch.name}-run")


class Held:
    """A folder, for as long as this is open."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where there is no such folder."""
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = Path(f"/proc/{os.getpid()}/fd/{self.fd}")
        """Leads to the folder in every process of this user, for as long as this process lives."""
        self.was_gone = False
        """Whether it is another one by now, made in the place of one that was removed."""

    @property
    def where(self) -> Path:
        """Where it is now; the last name that it had, if it has none any more."""
        name = str(self.path.readlink())
        return Path(name.removesuffix(DELETED) if self.is_gone else name)

    @property
    def is_gone(self) -> bool:
        """Whether it was removed: nothing can be made in it any more."""
        return os.fstat(self.fd).st_nlink == 0

    def is_at(self, path: Path) -> bool:
        """Whether that path, which may not be a link, is this folder."""
        with suppress(OSError):
            return os.path.samestat(path.lstat(), os.fstat(self.fd))
        return False

    def follow(self, paths: Iterable[Path]) -> None:
        """Where the folder is gone, holds the first of these in its place, under the same path."""
        for path in paths if self.is_gone else ():
            with suppress(OSError):
                found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                if os.fstat(found).st_uid == os.geteuid():
                    self._hold(found)
                    return
                os.close(found)

    def make_anew(self, otherwise: Path) -> None:
        """Where the folder is gone, makes one where it was, or else elsewhere. Raises OSError."""
        if not self.is_gone:
            return
        made = self.where
        try:
            made.mkdir(parents=True)
        except OSError:
            made = otherwise
            made.mkdir(mode=0o700)
        self._hold(os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))

    def remove(self, paths: Iterable[Path]) -> None:
        """Removes the folder if it is one of these, as it is not when it was given another name."""
        for path in paths:
            if self.is_at(path):
                with suppress(OSError):
                    remove_folder(path, self.fd)

    def _hold(self, descriptor: int) -> None:
        os.dup2(descriptor, self.fd, inheritable=False)
        os.close(descriptor)
        self.was_gone = True

    def close(self) -> None:
        """Lets it go."""
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class KeptRun:
    """The folder of a run as its keeper has it: locked, and made anew when it is removed."""

    def __init__(self, path: Path) -> None:
        """Locks the folder, for whoever would resume the sweep: `Sweep.remove_partial` waits for the lock."""
        self._held = Held(path)
        self.path = self._held.path
        self._rescued: dict[str, int] = {}
        """Descriptors of files that have lost their names, by name."""
        fcntl.flock(self._held.fd, fcntl.LOCK_EX)

    def look(self, find_pids: Callable[[], Iterable[int]]) -> None:
        """Gets hold of what those processes and this one have open in a folder that is gone, or that was emptied.

        A folder that is gone is made anew.
        """
        old, is_gone = self._held.where, self._held.is_gone
        if not is_gone and (self.path / CELL_FILE).exists():
            return
        if is_gone:
            with suppress(OSError):  # there is no room, nor will there be any for the record
                self._held.make_anew(elsewhere(Path(tempfile.gettempdir())))
                fcntl.flock(self._held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for pid in [os.getpid(), *find_pids()]:
            self._rescue(old, Path(f"/proc/{pid}/fd"))

    def _rescue(self, old: Path, descriptors: Path) -> None:
        with suppress(OSError):  # the process may end at any moment
            for link in descriptors.iterdir():
                with suppress(OSError):
                    name = str(link.readlink())
                    is_left = name.endswith(DELETED) and Path(name).parent == old
                    if is_left and (of_run := Path(name.removesuffix(DELETED)).name) not in self._rescued:
                        self._rescued[of_run] = os.open(link, os.O_RDONLY | os.O_CLOEXEC)

    def settle(self) -> None:
        """Copies what was rescued into the folder; call it when the processes of the run have ended."""
        for name, descriptor in self._rescued.items():
            with suppress(OSError), os.fdopen(descriptor, "rb") as source, (self.path / name).open("xb") as copy:
                source.seek(0)
                shutil.copyfileobj(source, copy)
        self._rescued.clear()
