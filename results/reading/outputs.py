"""Writing files into folders that may be anybody's: nothing is written through what somebody put in a file's place."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from results.reading.untrusted import KINDS

NEW_PREFIX = ".new-"
"""Of a file that is being written; a killed process leaves it."""
STREAMS = tuple(map(Path, ("/dev", "/dev/fd", "/proc/self/fd")))
"""Folders of the system's own whose names are no files: `--out /dev/stdout`."""


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A new file that gets its name by one rename, when it is whole, or not at all. Raises OSError.

    Whatever had the name is replaced: a link, or another name of the same file, is not written through.
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
    """The same for a file that the user asked for; a stream of the system's, such as `/dev/stdout`, is written to.

    Raises OSError, for a pipe, a socket, a device or a folder too.
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


def write_output(path: Path, pieces: Iterable[str]) -> None:
    """Writes the text of a file that the user asked for. Raises OSError."""
    with output(path) as file:
        file.writelines(piece.encode("utf-8") for piece in pieces)


def _kind(path: Path) -> int:
    """Of what has the name now; 0 where nothing has."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return 0
