from __future__ import annotations

import io

import pyarrow as pa
import pytest
from pyarrow import parquet

from rlbench.results.reading.thrift import BINARY, I32, LIST, STRUCT, key, read_struct

NESTED = b"\x15\x02\x29\x2c" + (b"\x19\x1c\x15\x04\x00\x00") * 2 + b"\x00"
"""A number; a list of two structs, each of which has a list of one struct."""


def footer() -> bytes:
    """Of a file that Arrow writes, with all that it says of columns."""
    made = io.BytesIO()
    table = pa.table({"a": [1, None, 3], "b": ["x", "y" * 200, ""], "c": [[1.5], [], None], "d": [True, False, True]})
    parquet.write_table(table, made, row_group_size=2, write_page_index=True)
    data = made.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def test_a_footer_is_read_to_its_end() -> None:
    """As a whole, and with places instead of what is in lists of lists: they are where the structs begin."""
    data = footer()
    whole, end = read_struct(data)
    assert end == len(data)
    brief, end = read_struct(data, lists=1)
    assert end == len(data)
    groups, places = whole[key(4, LIST)][1], brief[key(4, LIST)][1]
    assert len(groups) == len(places) == 2
    for group, of_group in zip(groups, places, strict=True):
        there = [read_struct(data, place)[0] for place in of_group[key(1, LIST)][1]]
        assert there == group[key(1, LIST)][1]
        assert len(there) == 4


def test_structs_in_lists() -> None:
    """Whole, or by their places."""
    fields, end = read_struct(NESTED)
    assert end == len(NESTED)
    inner = {key(1, LIST): (STRUCT, [{key(1, I32): 2}])}
    assert fields == {key(1, I32): 1, key(3, LIST): (STRUCT, [inner, inner])}
    assert read_struct(NESTED, lists=0)[0][key(3, LIST)] == (STRUCT, [4, 10])
    assert read_struct(NESTED, lists=1)[0][key(3, LIST)][1][0] == {key(1, LIST): (STRUCT, [6])}


@pytest.mark.parametrize("lists", [0, 1, 16])
def test_what_is_cut_off_is_refused(lists: int) -> None:
    """Wherever that is."""
    for data in (NESTED, footer()):
        for end in range(len(data)):
            with pytest.raises(ValueError, match=r"is cut off|too long"):
                read_struct(data[:end], lists=lists)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x15\x02\x05\x02\x02\x00", "a field 1 after 1"),
        (b"\x25\x02\x05\x02\x02\x00", "a field 1 after 2"),
        (b"\x05\x00\x02\x00", "a field 0 after 0"),
        (b"\x05\xff\xff\x7f\x02\x00", "a field -"),
        (b"\x1c" * 100, "nested too deeply"),
        (b"\x19\x19" * 100, "nested too deeply"),
        (b"\x19\xfc\xff\xff\xff\x7f", "a list that is too long"),
        (b"\x15" + b"\xff" * 20, "too many digits"),
        (b"\x1b\x00\x00", "a field of type 11"),
        (b"\x1d\x00", "a field of type 13"),
    ],
)
def test_what_is_ambiguous_is_refused(data: bytes, said: str) -> None:
    """Fields ascend, so that none stands twice; nothing is nested as deep as a stack."""
    with pytest.raises(ValueError, match=said):
        read_struct(data)


def test_texts_are_bytes() -> None:
    """Whatever they hold."""
    assert read_struct(b"\x18\x02\xff\x00\x00")[0] == {key(1, BINARY): b"\xff\x00"}
