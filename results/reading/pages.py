"""Checks the footer and the page headers of a Parquet file before anything is decoded.

The footer of a file may lie. A decoder believes each page's header: its size unpacked, the number of values in its
dictionary, its encoding. A page of 100 bytes can thus ask for 2 GiB of memory, and for more with a prefix encoding.
This module parses the footer itself, because some damaged footers crash the process in Arrow (pyarrow 26). Field
numbers are those of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from rlbench.results.reading.thrift import BINARY, I32, I64, LIST, STRUCT, Fields, key, read_struct

MAGIC = b"PAR1"
FOOTER_BYTES = 4 * 2**20
"""Maximum size of a footer: enough for 100 columns in 100 row groups; our files have 50 columns in 10."""
PAGE_BYTES = 64 * 2**20
"""Maximum size of a page, unpacked; writers end a page at 1 MiB."""
HEADER_BYTES = 64 * 2**10
"""Maximum size of a page header; most have 30 bytes, those with statistics of a text a few hundred."""
MOST_PAGES = 50_000
"""Maximum number of pages in the columns that are read; our largest file has a hundred times fewer, at 1 MiB each."""
MOST_VALUES = 2**31 - 1
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
"""Page types."""
OWN_HEADER = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}
"""By page type: the field of the page header that holds the header of that type."""
ENCODING = {DATA: 2, DICTIONARY: 2, DATA_V2: 4}
"""By page type: the field of that type's header that holds the encoding."""
BOUNDED = {0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 8: "RLE_DICTIONARY"}
"""Encodings whose decoded values are never longer than those stored in the page or in its dictionary."""
LEAST_BYTES = 4
"""Minimum encoded size of a value in a dictionary."""
REPEATED = 2
"""The repetition type of a column whose rows may hold any number of values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumn:
    """A flat column of a file."""

    stored: int
    """Parquet's physical type."""
    places: list[int]
    """For each row group, where the footer describes the column: an offset into the footer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footer:
    """What the footer of a file says."""

    data: bytes
    size: int
    """Size of the file, in bytes."""
    num_rows: int
    groups: list[int]
    """Number of rows in each row group."""
    columns: dict[str, FileColumn | None]
    """By name; None where several columns have that name, or where the column is not flat."""

    def chunks(self, column: FileColumn) -> Iterator[tuple[int, int, int]]:
        """For each row group: the column's number of values, first byte and end in the file. Raises ValueError."""
        for place in column.places:
            fields, _ = read_struct(self.data, place)
            try:
                yield _chunk(fields, self.size)
            except KeyError as problem:
                raise ValueError(f"has no field {problem}") from None


def read_footer(file: BinaryIO, size: int) -> Footer:
    """Reads the footer of a file of `size` bytes. Raises ValueError if it contradicts itself or the file."""
    file.seek(max(0, size - 8))
    tail = file.read(8)
    if len(tail) < 8 or tail[4:] != MAGIC:
        raise ValueError("is no Parquet file, or cut off")
    length, most = int.from_bytes(tail[:4], "little"), min(FOOTER_BYTES, size - 12)
    if not 0 < length <= most:
        raise ValueError(f"has a footer of {length:,} bytes, must be at most {most:,}")
    file.seek(size - 8 - length)
    try:
        return _footer(file.read(length), size)
    except (ValueError, KeyError) as problem:
        raise ValueError(f"has a footer that is damaged ({problem})") from None


@lru_cache(maxsize=512)  # a report reads a series two or three times
def _footer(data: bytes, size: int) -> Footer:
    fields, _ = read_struct(data, lists=1)  # columns of row groups stay unparsed: only their places
    names = _leaves(_list_of(fields, 2))
    groups: list[Fields] = _list_of(fields, 4)
    rows = [_number(group, 3, I64) for group in groups]
    num_rows = _number(fields, 3, I64)
    if min(rows, default=0) < 0 or sum(rows) != num_rows:
        raise ValueError("rows do not add up")
    places: list[list[int]] = [_list_of(group, 1) for group in groups]
    if any(len(of_group) != len(names) for of_group in places):
        raise ValueError("columns do not add up")
    columns: dict[str, FileColumn | None] = {}
    for number, (name, stored) in enumerate(names):
        flat = name not in columns and stored is not None
        of_groups = [of_group[number] for of_group in places]
        columns[name] = FileColumn(stored=stored, places=of_groups) if flat and stored is not None else None
    return Footer(data=data, size=size, num_rows=num_rows, groups=rows, columns=columns)


def _leaves(schema: list[Fields]) -> list[tuple[str, int | None]]:
    """The leaf columns in order: the name of each at the top level, and its physical type if it is flat, else None."""
    found: list[tuple[str, int | None]] = []
    left = [_number(schema[0], 5, I32)] if schema else [0]  # children still to come: of the root, of its child, ...
    name = ""
    for element in schema[1:]:
        while left and not left[-1]:
            left.pop()
        if not left:
            raise ValueError("schema does not add up")
        left[-1] -= 1
        is_top = len(left) == 1
        if is_top:
            name = element[key(4, BINARY)].decode("utf-8")
        num_children = element.get(key(5, I32), 0)
        if num_children:
            left.append(num_children)
        else:
            flat = is_top and element.get(key(3, I32), 0) != REPEATED
            found.append((name, _number(element, 1, I32) if flat else None))
    if any(left):
        raise ValueError("schema does not add up")
    return found


def _chunk(column: Fields, size: int) -> tuple[int, int, int]:
    about = column[key(3, STRUCT)]
    if key(1, BINARY) in column:
        raise ValueError("a column is in another file")
    num_values, data = _number(about, 5, I64), _number(about, 9, I64)
    if not num_values:  # then there is no page, and no place
        return 0, 0, 0
    dictionary = about.get(key(11, I64), 0)
    begin = dictionary if 0 < dictionary < data else data  # as Arrow has it
    end = begin + _number(about, 7, I64)
    if not 0 < begin <= end <= size:
        raise ValueError("a column lies outside the file")
    return num_values, begin, end


def _list_of(fields: Fields, number: int) -> list[Any]:
    """The structs of a list, or their places where `read_struct` kept only those."""
    kind, values = fields[key(number, LIST)]
    if values and kind != STRUCT:
        raise ValueError(f"field {number} is no list of structs")
    found: list[Any] = values
    return found


def _number(fields: Fields, number: int, kind: int) -> int:
    value: int | None = fields.get(number << 4 | kind)
    if value is None:
        raise ValueError(f"field {number} is missing")
    return value


def check_pages(file: BinaryIO, begin: int, end: int) -> int:
    """Checks the pages of a column between two bytes of a file, and returns their number. Raises ValueError."""
    place, num_pages = begin, 0
    while place < end:
        num_pages += 1
        if num_pages > MOST_PAGES:
            raise ValueError(f"has more than {MOST_PAGES:,} pages")
        file.seek(place)
        try:
            fields, length = read_struct(file.read(min(HEADER_BYTES, end - place)))
            packed = _number(fields, 3, I32)
            _check(fields)
        except ValueError as problem:
            raise ValueError(f"has a page that {problem}") from None
        place += length + packed
        if packed < 0 or place > end:
            raise ValueError("has a page that goes beyond its column")
    return num_pages


def _check(fields: Fields) -> None:
    """Raises ValueError for a page that might exceed the bounds when it is unpacked."""
    kind, unpacked = _number(fields, 1, I32), _number(fields, 2, I32)
    if not 0 <= unpacked <= PAGE_BYTES:
        raise ValueError(f"has {unpacked:,} bytes, must have at most {PAGE_BYTES:,}")
    own: Any = fields.get(key(OWN_HEADER.get(kind, 0), STRUCT))
    if own is None:
        raise ValueError(f"is of type {kind}, and says nothing of it")
    num_values, encoding = _number(own, 1, I32), _number(own, ENCODING[kind], I32)
    if encoding not in BOUNDED:
        raise ValueError(f"has encoding {encoding}, known: {', '.join(BOUNDED.values())}")
    if not 0 <= num_values <= MOST_VALUES or (kind == DICTIONARY and num_values * LEAST_BYTES > unpacked):
        raise ValueError(f"has {num_values:,} values in {unpacked:,} bytes")
