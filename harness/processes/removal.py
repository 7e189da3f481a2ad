"""Removes our folders by descriptor: follows no link, and does not touch what somebody has put in their place."""

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
"""The group may write: where umask is 002, it is the user's own group."""
OTHERS_ENTER = 0o077


@contextmanager
def opened_folder(path: Path | str, *, dir_fd: int | None = None) -> Iterator[int]:
    """Opens a folder and gives its descriptor. Raises OSError for a link, a pipe or anything else."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_ours_alone(descriptor: int, others: int) -> bool:
    """Whether this user owns the open file or folder, and no other user has any of the rights `others`."""
    status = os.fstat(descriptor)
    return status.st_uid == os.geteuid() and not status.st_mode & others


def inside(descriptor: int) -> Path:
    """A path to an open folder that stays valid when the folder is renamed; for this process only."""
    return Path(f"/proc/self/fd/{descriptor}")


def remove_folder(path: Path, descriptor: int) -> None:
    """Removes everything in the open folder, and then the folder `path`, its name, if that is empty.

    The folder may be of any depth: folders inside others are moved up into this one, under random names, so neither the
    stack nor the descriptors of this process run out, and no path gets too long. Raises OSError at the end if something
    could not be removed; everything else is gone then, except what lies in folders that may not be written to.
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
    """Removes files, links and empty folders from the open folder; returns the names of the remaining folders."""
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
    """Collects the errors inside, except for files that are gone: a dying process may have removed them itself."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as problem:
        problems.append(problem)


def open_lock(path: Path | str, *, dir_fd: int | None = None, create: bool = True) -> int:
    """Opens a regular file, to be locked with `flock`, and leaves its content alone. Raises OSError for all else."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o644, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "is no regular file", str(path))
    return descriptor
