"""Reads files that may come from somebody else: the result is a value or a ValueError, whatever the file holds.

No file read here can run code, lead out of its folder, block, or take more memory than its kind of file needs. Error
messages do not name the file: the caller puts its name in front. `results.reading.tables` reads Parquet files on top
of this module.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

MIB = 2**20
RECORD_BYTES = 8 * MIB
"""Maximum size of `run.json`: a usual one has 10 KB, and a warning for each of 16,384 ranks takes 2 MB."""
PLAN_BYTES = 128 * MIB
"""Maximum size of `sweep.json`: a sweep has at most 100,000 cells, of 1 KB each."""
HISTORY_BYTES = 64 * MIB
"""Maximum size of a history: 100,000 rows of 500 bytes take 50 MB."""
TABLE_BYTES = 2**31
"""Maximum size of a Parquet file: the spans of 128 ranks with 16 environments each take a tenth of it."""
WEIGHTS_BYTES = 2**31
"""Maximum size of `policy.pt`: half a billion weights, a hundred times as many as our largest network has."""
MOST_DEPTH = 64
"""Maximum nesting of a JSON document, so that recursion over one cannot run out of stack; a record has 6 levels."""
LARGEST_WHOLE = 2**63 - 1
LONGEST_WHOLE = 20
"""Maximum number of characters of a whole number: its digits and a sign."""
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, characters that set the text direction, and halves of surrogate pairs."""

_HALVES = re.compile(r"[\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Returns the text so that a terminal shows it and does not obey it: an escape character becomes `\x1b`."""
    if text.isprintable():
        return text
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def is_text(value: str) -> bool:
    """Whether a text can be written to any file: it has no half of a surrogate pair."""
    return value.isprintable() or _HALVES.search(value) is None


@contextmanager
def opened(path: Path, most_bytes: int, *, inside: bool = True) -> Iterator[BinaryIO]:
    """Opens a regular file, unbuffered.

    Args:
        path: path of the file.
        most_bytes: maximum size; the constants above give it for each kind of file.
        inside: whether the file is part of its folder; it may then not be a link that leads out of that folder. A file
            that the user named directly may be a link to anywhere.

    Raises ValueError, without the file's name, if it cannot be opened, is no regular file or is too large.
    """
    try:
        descriptor = _open(path, inside=inside)
    except OSError as problem:
        raise ValueError(problem.strerror or str(problem)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"is {KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, must be a regular file")
        if status.st_size > most_bytes:
            raise ValueError(f"has {status.st_size:,} bytes, must have at most {most_bytes:,}")
        with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _open(path: Path, *, inside: bool) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # a pipe without a writer would block
    if not inside:
        return os.open(path, flags)
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError:
        if not path.is_symlink():
            raise
    try:
        target = path.resolve(strict=True)
    except RuntimeError:
        raise ValueError("is a link that leads back to itself") from None
    if not target.is_relative_to(path.parent.resolve()):
        raise ValueError(f"is a link that leads out of its folder, to {target}")
    return os.open(target, flags | os.O_NOFOLLOW)


def read_text(path: Path, most_bytes: int, *, inside: bool = True) -> str:
    """Reads the text of a file; arguments as for `opened`. Raises ValueError, without the file's name."""
    with opened(path, most_bytes, inside=inside) as file:
        pieces, left = [], most_bytes + 1
        try:
            while left and (piece := file.read(left)):
                pieces.append(piece)
                left -= len(piece)
        except OSError as problem:
            raise ValueError(problem.strerror or str(problem)) from None
    if not left:  # the file has grown, or its size was not known beforehand
        raise ValueError(f"has more than {most_bytes:,} bytes")
    try:
        return b"".join(pieces).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is no text in UTF-8") from None


def read_json(path: Path, most_bytes: int) -> Any:
    """Reads the JSON document of a file that is part of its folder; see `parse_json`."""
    return parse_json(read_text(path, most_bytes))


def parse_json(text: str) -> Any:
    """Parses JSON that holds only strings, booleans, null and finite numbers of 64 bits, and no key of an object twice.

    Characters that a terminal would obey are made visible. Raises ValueError for anything else, with the dotted place
    of a value that it refuses.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_int=_whole)
    except RecursionError:
        raise ValueError(f"has more than {MOST_DEPTH} levels") from None
    return _checked(document, ())


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        times = Counter(name for name, _ in pairs)
        raise ValueError(f"has the key {max(times, key=times.__getitem__)[:80]!a} twice")
    return made


def _whole(digits: str) -> float:
    """A whole number; infinity, which `_checked` refuses, if it has so many digits that parsing takes long."""
    return int(digits) if len(digits) <= LONGEST_WHOLE else math.inf


def _checked(value: Any, place: tuple[str, ...]) -> Any:
    kind = type(value)  # exactly the types that json makes
    if kind is str:
        return value if value.isprintable() else _text(value, place)
    if kind is dict or kind is list:
        if len(place) == MOST_DEPTH:
            raise ValueError(f"has more than {MOST_DEPTH} levels")
        if kind is list:
            return [_checked(each, (*place, str(at))) for at, each in enumerate(value)]
        return {
            key if key.isprintable() else _text(key, place): _checked(each, (*place, key))
            for key, each in value.items()
        }
    if value is not None and not -LARGEST_WHOLE - 1 <= value <= LARGEST_WHOLE and not _is_finite(value):
        raise ValueError(f"{_dotted(place)}: must be a finite number of 64 bits")
    return value


def _is_finite(value: float) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _text(value: str, place: tuple[str, ...]) -> str:
    if not is_text(value):
        raise ValueError(f"{_dotted(place)}: holds half of a surrogate pair, which is no character")
    return visible(value)


def _dotted(place: tuple[str, ...]) -> str:
    return visible(".".join(place))[:200] or "the document"
