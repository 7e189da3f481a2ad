"""Removes folders that are ours, by descriptor: no link is followed, and what came into their place is not touched."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHERS_WRITE = 0o002
"""Not the group's: it is the user's own where umask is 002."""
OTHERS_ENTER = 0o077


@contextmanager
def opened_folder(path: Path | str, *, dir_fd: int | None = None) -> Iterator[int]:
    """A folder by descriptor, for as long as it is entered. Raises OSError for a link, a pipe and all else."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_ours_alone(descriptor: int, others: int) -> bool:
    """Whether this user owns what is open, and others have none of the rights `others`."""
    status = os.fstat(descriptor)
    return status.st_uid == os.geteuid() and not status.st_mode & others


def inside(descriptor: int) -> Path:
    """A path to the folder that is open, wherever it was renamed to; of use in this process alone."""
    return Path(f"/proc/self/fd/{descriptor}")


def remove_folder(path: Path, descriptor: int) -> None:
    """Removes all that is in the folder that is open, and then `path`, which is its name, if that is an empty folder.

    However deep it is: folders that lie in others are moved up into this one, under names that nobody foresees, so that
    neither the stack nor the descriptors of this process run out, and no path gets too long. Raises OSError at the end
    for what cannot be removed; all else is gone then, but for what lies in folders that may not be written to.
    """
    problems: list[OSError] = []
    waiting = _remove_all_but_full(descriptor, problems)
    while waiting:
        name = waiting.pop()
        with _noting(problems), opened_folder(name, dir_fd=descriptor) as below:
            for full in _remove_all_but_full(below, problems):
                moved = secrets.token_hex(16)
                with _noting(problems):
                    os.rename(full, moved, src_dir_fd=below, dst_dir_fd=descriptor)
                    waiting.append(moved)
            os.rmdir(name, dir_fd=descriptor)
    if problems:
        raise problems[0]
    with suppress(FileNotFoundError):
        path.rmdir()


def _remove_all_but_full(descriptor: int, problems: list[OSError]) -> list[str]:
    """Removes files, links and empty folders in the folder that is open; returns the names of the other folders."""
    with os.scandir(descriptor) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    full = []
    for name, is_folder in names:
        with _noting(problems):
            try:
                (os.rmdir if is_folder else os.unlink)(name, dir_fd=descriptor)
            except OSError as problem:
                if problem.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                full.append(name)
    return full


@contextmanager
def _noting(problems: list[OSError]) -> Iterator[None]:
    """Notes what cannot be removed, but for what is gone: a process that was killed may have removed it meanwhile."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as problem:
        problems.append(problem)


def open_lock(path: Path | str, *, dir_fd: int | None = None, create: bool = True) -> int:
    """A regular file to be locked with `flock`, of which nothing is changed. Raises OSError for all else."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o644, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "is no regular file", str(path))
    return descriptor
