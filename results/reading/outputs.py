"""Writes files into folders that may be anybody's: never through a link that somebody put in a file's place."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rlbench.results.reading.untrusted import KINDS

NEW_PREFIX = ".new-"
"""Prefix of a file that is being written; a killed process leaves such a file behind."""
STREAMS = tuple(map(Path, ("/dev", "/dev/fd", "/proc/self/fd")))
"""System folders whose entries are streams, not files: `--out /dev/stdout`."""


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A new file that gets its name by one rename when it is complete, or not at all. Raises OSError.

    It replaces what had the name before: it never writes through a link, symbolic or hard.
    """
    unfinished = path.with_name(f"{NEW_PREFIX}{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def output(path: Path) -> Iterator[BinaryIO]:
    """Like `whole`, for a file that the user asked for; writes directly to a system stream such as `/dev/stdout`.

    Raises OSError, also for a pipe, a socket, a device or a folder.
    """
    if path.absolute().parent in STREAMS:
        with path.open("wb") as file:
            yield file
        return
    kind = _kind(path)
    if kind in KINDS:
        raise OSError(0, f"is {KINDS[kind]}, must be a regular file", str(path))
    with whole(path) as file:
        yield file


def refuse_links(*paths: Path) -> None:
    """Raises OSError if one of these is a link: what others write there would be written elsewhere."""
    for path in paths:
        if path.is_symlink():
            raise OSError(0, f"{path.name} is a link, which is not followed", str(path))


def write_output(path: Path, pieces: Iterable[str]) -> None:
    """Writes the text of a file that the user asked for. Raises OSError."""
    with output(path) as file:
        file.writelines(piece.encode("utf-8") for piece in pieces)


def _kind(path: Path) -> int:
    """The file type (`stat.S_IFMT`) of what has the name now; 0 where there is nothing."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return 0
