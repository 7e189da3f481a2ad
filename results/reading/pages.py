"""What a Parquet file says it holds, looked at before anything is decoded: its footer, and the headers of its pages.

The footer of a file may lie, and a decoder believes each page's own header: how large it is unpacked, how many values
its dictionary has, how they are encoded. A page of 100 bytes may so ask for 2 GiB, and an encoding by prefixes for
more. Arrow's own view of a footer (pyarrow 26) ends the process for some that are damaged: it is not asked. Fields are
those of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from results.reading.thrift import BINARY, I32, I64, LIST, STRUCT, Fields, key, read_struct

MAGIC = b"PAR1"
FOOTER_BYTES = 4 * 2**20
"""Of what a file says of itself at its end: 100 columns in 100 groups of rows take that, ours have 50 in 10."""
PAGE_BYTES = 64 * 2**20
"""Of a page, unpacked: writers end one at 1 MiB."""
HEADER_BYTES = 64 * 2**10
"""Of a page's header; most have 30, with statistics of a text a few hundred."""
MOST_PAGES = 50_000
"""Of the columns that are read: pages of 1 MiB are a hundred times fewer in the largest file."""
MOST_VALUES = 2**31 - 1
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
"""Types of pages."""
OWN_HEADER = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}
"""The field of a page's header that has what is of its type alone."""
ENCODING = {DATA: 2, DICTIONARY: 2, DATA_V2: 4}
"""The field of that in which the encoding stands."""
BOUNDED = {0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 8: "RLE_DICTIONARY"}
"""Encodings that make no value longer than what stands in the page or in its dictionary."""
LEAST_BYTES = 4
"""Of a value in a dictionary, as it is encoded there."""
REPEATED = 2
"""Of a column, that a row may have any number of values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of a file that is flat."""

    stored: int
    """Parquet's physical type."""
    places: list[int]
    """Where the footer speaks of it, for each group of rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footer:
    """What a file says of itself."""

    data: bytes
    size: int
    """Of the file."""
    num_rows: int
    groups: list[int]
    """Rows of each group."""
    columns: dict[str, Column | None]
    """By name; None where there are several of that name, or one that is not flat."""

    def chunks(self, column: Column) -> Iterator[tuple[int, int, int]]:
        """Of each group of rows: how many values a column has, and from which byte to which. Raises ValueError."""
        for place in column.places:
            fields, _ = read_struct(self.data, place)
            try:
                yield _chunk(fields, self.size)
            except KeyError as problem:
                raise ValueError(f"has no field {problem}") from None


def read_footer(file: BinaryIO, size: int) -> Footer:
    """The footer of a file of so many bytes. Raises ValueError for one that contradicts itself or the file."""
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
    fields, _ = read_struct(data, lists=1)  # of the groups of rows, only where they speak of columns
    names = _leaves(_list_of(fields, 2))
    groups: list[Fields] = _list_of(fields, 4)
    rows = [_number(group, 3, I64) for group in groups]
    num_rows = _number(fields, 3, I64)
    if min(rows, default=0) < 0 or sum(rows) != num_rows:
        raise ValueError("rows do not add up")
    places: list[list[int]] = [_list_of(group, 1) for group in groups]
    if any(len(of_group) != len(names) for of_group in places):
        raise ValueError("columns do not add up")
    columns: dict[str, Column | None] = {}
    for number, (name, stored) in enumerate(names):
        flat = name not in columns and stored is not None
        of_groups = [of_group[number] for of_group in places]
        columns[name] = Column(stored=stored, places=of_groups) if flat and stored is not None else None
    return Footer(data=data, size=size, num_rows=num_rows, groups=rows, columns=columns)


def _leaves(schema: list[Fields]) -> list[tuple[str, int | None]]:
    """The columns in their order: the name of each at the top, and its type where it is flat."""
    found: list[tuple[str, int | None]] = []
    left = [_number(schema[0], 5, I32)] if schema else [0]  # children of the root, of what is in it, and so on
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
    """The structs of a list, or their places."""
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
    """Checks the pages of a column between two places of a file; returns how many there are. Raises ValueError."""
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
    """Raises ValueError for a page that cannot be unpacked within bounds."""
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
