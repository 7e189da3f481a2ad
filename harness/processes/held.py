"""Folders that are held by descriptors, so that a run can go on when somebody renames or removes its folder.

Who holds: the runner holds the folders of the sweep and of the run; the keeper holds the run's folder separately. The
path of a held folder is `/proc/PID/fd/N`. Every process below opens it like any other path, and it stays valid when the
folder is renamed. What happens on a removal: the keeper creates the folder again, under its old name or else in the
folder for temporary files, and points the same descriptor (so the same path) at it. Files opened from then on are safe.
Files that were open already live on without a name until the last process closes them; the keeper opens them as well,
through /proc, and copies them when all processes have ended. Files that were closed by then are lost.
What blocks: only `KeptRun`, which waits for the lock of the run's folder when it is made.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rlbench.harness.processes.removal import remove_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CELL_FILE = "cell.json"
"""The first file in a run's folder. If it is missing, somebody has emptied the folder."""
DELETED = " (deleted)"
"""The kernel appends this to the name of a file that was removed."""


def elsewhere(scratch: Path) -> Path:
    """Where a run goes on if its folder cannot be made again: beside its folder for temporary files."""
    return scratch.with_name(f"{scratch.name}-run")


class Held:
    """A folder that is held until `close`."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if there is no such folder."""
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = Path(f"/proc/{os.getpid()}/fd/{self.fd}")
        """A path to the folder, valid in every process of this user for as long as this process lives."""
        self.was_gone = False
        """Whether the folder was removed at some time and a new one is held in its place."""

    @property
    def where(self) -> Path:
        """The folder's name now, or its last name if it was removed."""
        name = str(self.path.readlink())
        return Path(name.removesuffix(DELETED) if self.is_gone else name)

    @property
    def is_gone(self) -> bool:
        """Whether the folder was removed; no file can be created in it then."""
        return os.fstat(self.fd).st_nlink == 0

    def is_at(self, path: Path) -> bool:
        """Whether `path` is this folder itself; a link to it does not count."""
        with suppress(OSError):
            return os.path.samestat(path.lstat(), os.fstat(self.fd))
        return False

    def follow(self, paths: Iterable[Path]) -> None:
        """If the folder is gone, holds the first of `paths` that is a folder of this user, under the same `path`."""
        for path in paths if self.is_gone else ():
            with suppress(OSError):
                found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                if os.fstat(found).st_uid == os.geteuid():
                    self._hold(found)
                    return
                os.close(found)

    def make_anew(self, otherwise: Path) -> None:
        """If the folder is gone, makes a new one where it was, or else at `otherwise`. Raises OSError."""
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
        """Removes the folder if one of `paths` still leads to it; a folder that somebody has renamed stays."""
        for path in paths:
            if self.is_at(path):
                with suppress(OSError):
                    remove_folder(path, self.fd)

    def _hold(self, descriptor: int) -> None:
        os.dup2(descriptor, self.fd, inheritable=False)
        os.close(descriptor)
        self.was_gone = True

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class KeptRun:
    """The folder of a run as its keeper holds it: locked, and made again when somebody removes it."""

    def __init__(self, path: Path) -> None:
        """Locks the folder; `Sweep.remove_partial` waits for this lock when a sweep is resumed."""
        self._held = Held(path)
        self.path = self._held.path
        self._rescued: dict[str, int] = {}
        """Descriptors of files that were removed while they were open, by name."""
        fcntl.flock(self._held.fd, fcntl.LOCK_EX)

    def look(self, find_pids: Callable[[], Iterable[int]]) -> None:
        """If the folder was removed or emptied, opens the files in it that those processes or this one still have open.

        A folder that was removed is made again.
        """
        old, is_gone = self._held.where, self._held.is_gone
        if not is_gone and (self.path / CELL_FILE).exists():
            return
        if is_gone:
            with suppress(OSError):  # no room on the disk: then there will be none for the record either
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
        """Copies the rescued files into the folder; call it when the processes of the run have ended."""
        for name, descriptor in self._rescued.items():
            with suppress(OSError), os.fdopen(descriptor, "rb") as source, (self.path / name).open("xb") as copy:
                source.seek(0)
                shutil.copyfileobj(source, copy)
        self._rescued.clear()
