from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from rlbench.results.reading import pages
from rlbench.results.reading.pages import FOOTER_BYTES, PAGE_BYTES, check_pages
from rlbench.results.reading.tables import LARGEST, LONGEST_NAME, check_numbers, read_columns, read_frame
from tests.lanes import deep

ONE = {"rank": "int64"}
KIND = {"kind": "string"}


def write(path: Path, columns: Mapping[str, Any], **options: Any) -> Path:
    """A Parquet file."""
    parquet.write_table(pa.table(dict(columns)), path, **options)
    return path


def varint(value: int) -> bytes:
    """A number as Thrift's compact protocol has it."""
    value = value << 1 ^ value >> 63
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def header(*, kind: int = 0, unpacked: int = 8, packed: int = 8, num_values: int = 1, encoding: int = 0) -> bytes:
    """Of a page of data, or of a dictionary."""
    fields = b"".join(b"\x15" + varint(value) for value in (kind, unpacked, packed))
    own = {0: b"\x2c", 2: b"\x4c", 3: b"\x5c"}[kind]
    inner = b"\x15" + varint(num_values) + b"\x15" + varint(encoding) + b"\x00"
    return fields + own + inner + b"\x00"


def test_columns_are_read_as_asked(tmp_path: Path) -> None:
    """Those that are there, of the types that were asked for, and nothing else of the file."""
    path = write(tmp_path / "t", {"rank": [0, 1], "kind": ["a", None], "other": ["x", "y"], "lost": [True, False]})
    table = read_columns(path, ONE | KIND, {"lost": "bool", "missing": "int64"}, most_rows=2)
    assert table.to_pydict() == {"rank": [0, 1], "kind": ["a", None], "lost": [True, False]}
    assert table.schema.metadata is None
    assert [str(field.type) for field in table.schema] == ["int64", "string", "bool"]


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"data_page_version": "2.0"}, {"row_group_size": 7}])
@pytest.mark.parametrize("num", [0, 1, 100, 300_000])
def test_files_of_any_size_are_read(tmp_path: Path, num: int, options: dict[str, Any]) -> None:
    """Small ones at once, large ones piece by piece, empty ones as well."""
    if num > 1000 and "row_group_size" in options:
        options = {"row_group_size": num // 3}
    values = np.random.default_rng(0).integers(0, 2**40, num)
    path = write(tmp_path / "t", {"rank": values, "kind": pa.array(["learn"] * num, pa.string())}, **options)
    frame = read_frame(path, ONE | KIND, most_rows=num)
    assert frame["rank"].tolist() == values.tolist()
    assert set(frame["kind"]) <= {"learn"}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"other": [1]}, "column 'rank' is missing"),
        ({"rank": [[1]]}, "column 'rank' is no column of numbers"),
        ({"rank": [{"a": 1}]}, "column 'rank' is no column of numbers"),
        ({"rank": ["1"]}, "column 'rank' is no column of numbers"),
        ({"rank": pa.array([1], pa.decimal128(38, 2))}, "column 'rank' is no column of numbers"),
        ({"rank": pa.array([2**64 - 1], pa.uint64())}, "not in range"),
        ({"rank": [0.5]}, "truncated"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    """Before anything of them is decoded, where their type tells."""
    with pytest.raises(ValueError, match=said):
        read_columns(write(tmp_path / "t", columns), ONE, most_rows=1)


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Which of them would count?"""
    parquet.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["rank", "rank"]), tmp_path / "t")
    with pytest.raises(ValueError, match="column 'rank' is no column"):
        read_columns(tmp_path / "t", ONE, most_rows=1)


def test_rows_are_bounded_before_they_are_decoded(tmp_path: Path) -> None:
    """50 million equal rows take 200 KB in a file, and would take 400 MB."""
    path = write(tmp_path / "t", {"rank": np.zeros(50_000_000, np.int8)}, compression="zstd")
    assert path.stat().st_size < 1_000_000
    with pytest.raises(ValueError, match="has 50,000,000 rows, must have at most 1,000"):
        read_columns(path, ONE, most_rows=1000)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_encodings_that_multiply_are_refused(tmp_path: Path, encoding: str) -> None:
    """A value that is the one before it and no more is as long as that one."""
    path = write(tmp_path / "t", {"kind": ["x" * 90] * 1000}, use_dictionary=False, column_encoding={"kind": encoding})
    with pytest.raises(ValueError, match="column 'kind' has a page that has encoding"):
        read_columns(path, KIND, most_rows=1000)


def test_names_are_short(tmp_path: Path) -> None:
    """A million rows of one name of a megabyte take a megabyte in a file, and would take a terabyte."""
    read_columns(write(tmp_path / "t", {"kind": ["x" * LONGEST_NAME] * 9}), KIND, most_rows=9)
    for options in ({}, {"use_dictionary": False}):
        path = write(tmp_path / "t", {"kind": ["x" * (LONGEST_NAME + 1)] * 9}, **options)
        with pytest.raises(ValueError, match=f"a text of more than {LONGEST_NAME} bytes"):
            read_columns(path, KIND, most_rows=9)


def test_names_are_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are refused; Arrow would hand them on."""
    path = write(tmp_path / "t", {"kind": pa.array([b"\xff"]).view(pa.string())})
    with pytest.raises(ValueError, match=r"UTF-?8|utf-8"):
        read_columns(path, KIND, most_rows=1)


@pytest.mark.parametrize("values", [[None], [float("nan")], [float("inf")], [2.0 * LARGEST], [-2.0 * LARGEST]])
def test_numbers_are_numbers(tmp_path: Path, values: list[float | None]) -> None:
    """Of a size with which one can reckon."""
    table = read_columns(write(tmp_path / "t", {"t": pa.array(values, pa.float64())}), {"t": "float64"}, most_rows=1)
    with pytest.raises(ValueError, match=r"column 't' (lacks|has no finite) numbers"):
        check_numbers(table)


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"", "is no Parquet file"),
        (b"PAR1", "has a footer of 0 bytes"),
        (b"\xff\xff\xff\x7fPAR1", "has a footer of 2,147,483,647 bytes"),
        (b"\x10\x00\x00\x00PARE", "is no Parquet file"),
        ((FOOTER_BYTES + 1).to_bytes(4, "little") + b"PAR1", "has a footer of"),
    ],
)
def test_footers_are_bounded(tmp_path: Path, tail: bytes, said: str) -> None:
    """Before Arrow sees them."""
    (tmp_path / "t").write_bytes(b"PAR1" + bytes(100) + tail)
    with pytest.raises(ValueError, match=said):
        read_columns(tmp_path / "t", ONE, most_rows=1)


def test_pages_are_looked_at_before_they_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every column that is read, and in no other."""
    path = write(tmp_path / "t", {"rank": np.arange(10_000), "other": np.arange(10_000)})
    monkeypatch.setattr(pages, "PAGE_BYTES", 1000)
    monkeypatch.setattr(parquet.ParquetFile, "read", None)
    with pytest.raises(ValueError, match=r"column 'rank' has a page that has [\d,]+ bytes, must have at most 1,000"):
        read_columns(path, ONE, most_rows=10_000)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (header(unpacked=PAGE_BYTES + 1), "has 67,108,865 bytes, must have at most"),
        (header(unpacked=-1), "has -1 bytes"),
        (header(packed=9), "goes beyond its column"),
        (header(packed=-1), "goes beyond its column"),
        (header(encoding=7), "encoding 7"),
        (header(num_values=-1), "has -1 values"),
        (header(num_values=2**31), "values in"),
        (header(kind=2, num_values=3), "has 3 values in 8 bytes"),
        (b"\x15\x02" + header()[2:], "type 1"),
        (b"\x15\x00\x15\x08\x15\x08\x00", "is of type 0, and says nothing of it"),
        (b"\x15\x00\x15\x08\x00", "field 3 is missing"),
        (b"\x16\x00" + header()[2:], "field 1 is missing"),
        (b"\x15\x00\x05\x02\x00", "a field 1 after 1"),
        (b"\x15" * 3 + b"\xff" * 12, "too many digits"),
        (b"\x1c" * 50, "nested"),
        (b"\x1b" * 3, "a field of type 11"),
        (b"\x18\xff\xff\x7f", "cut off"),
        (header()[:3], "cut off"),
    ],
)
def test_pages_are_bounded(page: bytes, said: str) -> None:
    """By what their headers say, and a header that a decoder could read in another way is refused."""
    data = page + (b"" if said == "cut off" else bytes(8))
    with pytest.raises(ValueError, match=said):
        check_pages(io.BytesIO(data), 0, len(data))


def test_pages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gigabyte of headers not all are looked at."""
    data = (header() + bytes(8)) * 4
    assert check_pages(io.BytesIO(data), 0, len(data)) == 4
    monkeypatch.setattr(pages, "MOST_PAGES", 3)
    with pytest.raises(ValueError, match="more than 3 pages"):
        check_pages(io.BytesIO(data), 0, len(data))


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=deep)])
def test_any_bit_of_a_file_may_be_wrong(tmp_path: Path, every: int) -> None:
    """Each bit of a small file, one after the other: there are columns, or one line that says what is wrong.

    Or every seventh bit, which is one or two of each byte, in turn the first to the last.
    Of some the process would end, were Arrow asked for what the footer says: a histogram of a size that does not fit
    its column, say, is an exception of C++ that nobody catches.
    """
    good = write(tmp_path / "t", {"rank": [1, 2], "kind": ["a", "b"]}, compression="zstd").read_bytes()
    said = Counter[str]()
    places = range(0, 8 * len(good), every)
    for place in places:
        data = bytearray(good)
        data[place // 8] ^= 1 << place % 8
        (tmp_path / "t").write_bytes(data)
        try:
            read_columns(tmp_path / "t", ONE | KIND, most_rows=10)
        except ValueError as problem:
            said[str(problem)] += 1
    assert 0 < said.total() < len(places)
    assert [text for text in said if "\n" in text] == []
