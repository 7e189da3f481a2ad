"""Parses structs of Thrift's compact protocol, in which Parquet files describe their content.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. A struct whose field numbers do not
ascend is refused: it could hold a field twice, and a decoder might take the other one. Fields are kept by number and
type, because decoders skip a field whose type is not the one they know.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, _MAP, STRUCT = range(1, 13)
"""Field types."""
MOST_NESTING = 16
"""Maximum nesting of structs and lists; a footer has 6 levels."""
LARGEST_FIELD = 2**15 - 1
MOST_SHIFT = 63

Fields = dict[int, Any]
"""Values by the `key` of their field; a list is a pair: the type of its elements, and the elements."""


def key(number: int, kind: int) -> int:
    """The key of a field with this number and type in `Fields`."""
    return number << 4 | kind


def read_struct(data: bytes, at: int = 0, *, lists: int = MOST_NESTING) -> tuple[Fields, int]:
    """Parses the struct that begins at byte `at`; returns its fields and where it ends.

    Structs in lists nested deeper than `lists` are not parsed: only their places are kept, so that a caller can parse
    those it needs. That takes half the time. Raises ValueError for a struct that is cut off or ambiguous.
    """
    try:
        fields, end = _struct(data, at, 0, lists)
    except IndexError:
        raise ValueError("is cut off") from None
    if end > len(data):
        raise ValueError("is cut off")
    return fields, end


def _struct(data: bytes, at: int, nesting: int, lists: int) -> tuple[Fields, int]:
    if nesting > MOST_NESTING:
        raise ValueError("is nested too deeply")
    fields: Fields = {}
    number = 0
    while head := data[at]:
        at += 1
        kind, last = head & 15, number
        if head > kind:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        if not last < number <= LARGEST_FIELD:
            raise ValueError(f"has a field {number} after {last}")
        # Three of four fields are numbers, or texts whose length fits into a byte: these are read without a call.
        byte = data[at]
        if byte < 128 and I16 <= kind <= I64:
            fields[number << 4 | kind] = (byte >> 1) ^ -(byte & 1)
            at += 1
        elif byte < 128 and kind == BINARY:
            at += 1 + byte
            fields[number << 4 | kind] = data[at - byte : at]
        elif kind <= FALSE:
            fields[number << 4 | kind] = kind == TRUE
        elif kind == STRUCT:
            fields[number << 4 | kind], at = _struct(data, at, nesting + 1, lists)
        else:
            fields[number << 4 | kind], at = _value(data, at, kind, nesting, lists)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, nesting: int, lists: int) -> tuple[Any, int]:
    if kind == BINARY:
        length, at = _unsigned(data, at)
        return data[at : at + length], at + length
    if kind == STRUCT:
        return _struct(data, at, nesting + 1, lists)
    if kind in {LIST, SET}:
        return _list(data, at, nesting, lists - 1)
    if kind <= BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        return data[at : at + 8], at + 8
    if I16 <= kind <= I64:
        return _signed(data, at)
    raise ValueError(f"has a field of type {kind}")  # Parquet has no maps


def _list(data: bytes, at: int, nesting: int, lists: int) -> tuple[tuple[int, list[Any]], int]:
    num, kind, at = _list_head(data, at, nesting)
    values: list[Any] = []
    if kind == STRUCT and lists < 0:
        for _ in range(num):
            values.append(at)
            at = _skip_struct(data, at, nesting + 1)
        return (kind, values), at
    if I16 <= kind <= I64 and max(data[at : at + num], default=0) < 128:  # every number takes one byte
        return (kind, [(byte >> 1) ^ -(byte & 1) for byte in data[at : at + num]]), at + num
    for _ in range(num):
        value, at = _value(data, at, kind, nesting + 1, lists)
        values.append(value)
        if at > len(data):
            raise IndexError
    return (kind, values), at


def _list_head(data: bytes, at: int, nesting: int) -> tuple[int, int, int]:
    """The number of a list's elements, their type, and where they begin."""
    head = data[at]
    num, kind = head >> 4, head & 15
    at += 1
    if num == 15:
        num, at = _unsigned(data, at)
    if num > len(data) or nesting > MOST_NESTING:
        raise ValueError("has a list that is too long, or nested too deeply")
    return num, kind, at


def _skip_struct(data: bytes, at: int, nesting: int) -> int:
    """Returns where a struct ends, without keeping its fields."""
    if nesting > MOST_NESTING:
        raise ValueError("is nested too deeply")
    while head := data[at]:
        at += 1
        kind = head & 15
        if head == kind:
            _, at = _unsigned(data, at)
        if I16 <= kind <= I64:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind == BINARY:
            byte = data[at]
            if byte < 128:
                at += 1 + byte
            else:
                length, at = _unsigned(data, at)
                at += length
        elif kind > FALSE:
            at = _skip_value(data, at, kind, nesting)
    return at + 1


def _skip_value(data: bytes, at: int, kind: int, nesting: int) -> int:
    if kind == STRUCT:
        return _skip_struct(data, at, nesting + 1)
    if kind == LIST:
        return _skip_list(data, at, nesting)
    _, at = _value(data, at, kind, nesting, MOST_NESTING)
    return at


def _skip_list(data: bytes, at: int, nesting: int) -> int:
    num, kind, at = _list_head(data, at, nesting)
    if I16 <= kind <= I64:
        for _ in range(num):
            while data[at] > 127:
                at += 1
            at += 1
        return at
    for _ in range(num):
        at = _skip_value(data, at, kind, nesting + 1)
        if at > len(data):
            raise IndexError
    return at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift <= MOST_SHIFT:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("has a number of too many digits")


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at
