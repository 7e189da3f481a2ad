"""What the pages of a Parquet file say they hold, looked at before anything is decoded.

The footer of a file may lie, and a decoder believes each page's own header: how large it is unpacked, how many values
its dictionary has, how they are encoded. A page of 100 bytes may so ask for 2 GiB, and an encoding by prefixes for
more. Headers are structs of Thrift's compact protocol (https://parquet.apache.org/docs/file-format/data-pages/); one
that says anything twice, or with another type than it should, is refused: no decoder can then read it otherwise.
"""

from __future__ import annotations

from typing import Any, BinaryIO

PAGE_BYTES = 64 * 2**20
"""Of a page, unpacked: writers end one at 1 MiB."""
HEADER_BYTES = 64 * 2**10
"""Of a page's header; most have 30, with statistics of a text a few hundred."""
MOST_PAGES = 50_000
"""Of the columns that are read: pages of 1 MiB are a hundred times fewer in the largest file."""
MOST_NESTING = 8
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
TRUE, FALSE, I16, I32, I64, BINARY, STRUCT = 1, 2, 4, 5, 6, 8, 12
"""Types of the fields that a page's header has."""
LARGEST_FIELD, MOST_VALUES = 2**15 - 1, 2**31 - 1
"""What a field's number, and a number of values, can be."""


def check_pages(file: BinaryIO, begin: int, end: int) -> int:
    """Checks the pages of a column between two places of a file; returns how many there are. Raises ValueError."""
    place, num_pages = begin, 0
    while place < end:
        num_pages += 1
        if num_pages > MOST_PAGES:
            raise ValueError(f"has more than {MOST_PAGES:,} pages")
        file.seek(place)
        header = _Header(file.read(min(HEADER_BYTES, end - place)))
        fields = header.struct()
        packed = _number(fields, 3)
        place += header.place + packed
        if packed < 0 or place > end:
            raise ValueError("has a page that goes beyond its column")
        _check(fields)
    return num_pages


def _check(fields: dict[int, tuple[int, Any]]) -> None:
    """Raises ValueError for a page that cannot be unpacked within bounds."""
    kind, unpacked = _number(fields, 1), _number(fields, 2)
    if not 0 <= unpacked <= PAGE_BYTES:
        raise ValueError(f"has a page of {unpacked:,} bytes, must be at most {PAGE_BYTES:,}")
    if kind not in OWN_HEADER:
        raise ValueError(f"has a page of type {kind}")
    own_type, own = fields.get(OWN_HEADER[kind], (0, None))
    if own_type != STRUCT:
        raise ValueError("has a page without a header of its type")
    num_values, encoding = _number(own, 1), _number(own, ENCODING[kind])
    if encoding not in BOUNDED:
        raise ValueError(f"has a page with encoding {encoding}, known: {', '.join(BOUNDED.values())}")
    if not 0 <= num_values <= MOST_VALUES or (kind == DICTIONARY and num_values * LEAST_BYTES > unpacked):
        raise ValueError(f"has a page of {num_values:,} values in {unpacked:,} bytes")


def _number(fields: dict[int, tuple[int, Any]], name: int) -> int:
    kind, value = fields.get(name, (0, None))
    if kind != I32:
        raise ValueError(f"has a page without field {name} of its header")
    assert isinstance(value, int)
    return value


class _Header:
    """A struct of Thrift's compact protocol, read from its first byte on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, nesting: int = 0) -> dict[int, tuple[int, Any]]:
        """Type and value of each field, by its number. Raises ValueError where it is cut off or says a thing twice."""
        if nesting > MOST_NESTING:
            raise ValueError("has a page whose header is nested")
        fields: dict[int, tuple[int, Any]] = {}
        name = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            name = name + step if step else self._signed()
            if name in fields or not 0 < name <= LARGEST_FIELD:
                raise ValueError(f"has a page with field {name} twice, or with no such field")
            fields[name] = kind, self._value(kind, nesting)
        return fields

    def _value(self, kind: int, nesting: int) -> Any:
        if kind in {TRUE, FALSE}:
            return kind == TRUE
        if kind in {I16, I32, I64}:
            return self._signed()
        if kind == BINARY:
            return self._skip(self._unsigned())
        if kind == STRUCT:
            return self.struct(nesting + 1)
        raise ValueError(f"has a page with a field of type {kind}")  # a page's header has no other

    def _byte(self) -> int:
        try:
            byte = self._data[self.place]
        except IndexError:
            raise ValueError("has a page whose header is cut off") from None
        self.place += 1
        return byte

    def _skip(self, num_bytes: int) -> None:
        self.place += num_bytes
        if self.place > len(self._data):
            raise ValueError("has a page whose header is cut off")

    def _unsigned(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("has a page with a number of too many digits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
