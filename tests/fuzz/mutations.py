"""How files are spoilt: strategies of hypothesis that take a good one and make something else of it."""

from __future__ import annotations

import copy
import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

CHANGES = (1, 1, 1, 2, 4)
FREE = ("configuration", "machine", "cell", "figures", "")
"""Parts of a record, of which some hold what they like; and the whole."""
HUGE = "@huge@"
"""Stands for a whole number of 5,000 digits, which `json.dumps` would not write."""
DEEP = "@deep@"
"""Stands for 100,000 lists in each other."""
VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "x", "0", "nan", [], {}, [None], {"a": {}}, [[["x"]]], {"": 1}, HUGE, DEEP),
    *(0, 1, -1, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 10**40),
    *(0.0, -0.0, 0.5, -0.5, 1.5, 1e18, 1e154, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf),
    *("\x1b]0;x\x07", "[bold]x[/bold]", "<b>&\u2028", "\x00", "\ud800", "a" * 10_000, "../../x", "/etc/passwd"),
    *("2026-01-01", "2026-13-01T99:00:00+00:00", "finished", "failed", "success>=0.5", "emulated", "cuda"),
)
COLUMNS: tuple[Callable[[int], Any], ...] = (
    lambda num: pa.nulls(num, pa.float64()),
    lambda num: pa.nulls(num, pa.null()),
    lambda num: pa.array([True] * num),
    lambda num: pa.array(["learn"] * num),
    lambda num: pa.array(["x" * 1000] * num),
    lambda num: pa.array([b"\xff\xfe"] * num, pa.binary()),
    lambda num: pa.array([b"\xff\xfe"] * num, pa.binary()).view(pa.string()),
    lambda num: pa.array([[1, 2]] * num, pa.list_(pa.int64())),
    lambda num: pa.array([{"a": 1}] * num, pa.struct([("a", pa.int64())])),
    lambda num: pa.array([{"rank": 1}] * num, pa.map_(pa.string(), pa.int64())),
    lambda num: pa.array([1] * num, pa.decimal128(38, 2)),
    lambda num: pa.array([1] * num, pa.timestamp("ns")),
    lambda num: pa.array([1] * num, pa.date32()),
    lambda num: pa.array([1] * num, pa.duration("s")),
    lambda num: pa.array([1] * num, pa.float16()),
    lambda num: pa.array(["a"] * num).dictionary_encode(),
    lambda num: pa.array([2**64 - 1] * num, pa.uint64()),
    lambda num: pa.array([2**63 - 1] * num, pa.int64()),
    lambda num: pa.array([-(2**63)] * num, pa.int64()),
    lambda num: pa.array([-1] * num, pa.int8()),
    lambda num: pa.array([0] * num, pa.int64()),
    lambda num: pa.array([0.5] * num, pa.float32()),
    lambda num: pa.array([math.nan] * num),
    lambda num: pa.array([math.inf] * num),
    lambda num: pa.array([1e308 if at % 2 else -1e308 for at in range(num)]),
    lambda num: pa.array([5e-324 * at for at in range(num)]),
    lambda num: pa.array([float(-at) for at in range(num)]),
    lambda num: pa.array([(at * 7919) % 13 for at in range(num)]),
)
"""Columns of so many rows that stand where others should."""
WRITERS: tuple[Mapping[str, Any], ...] = (
    {},
    {"compression": "zstd"},
    {"compression": "gzip"},
    {"compression": "none"},
    {"data_page_version": "2.0"},
    {"use_dictionary": False},
    {"data_page_size": 16},
    {"row_group_size": 3},
    {"store_schema": False},
    {"use_dictionary": False, "column_encoding": "DELTA_BINARY_PACKED"},
    {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    {"use_dictionary": False, "column_encoding": "BYTE_STREAM_SPLIT"},
)
"""Ways of writing a Parquet file."""
TOML_VALUES = (
    *("0", "-1", "1e400", "nan", "inf", "-inf", "true", '""', '"x"', "[]", "{}", "1979-05-27", "00:00:00", "'''x"),
    *("9" * 5000, "0x" + "f" * 5000, "[" * 2000 + "]" * 2000, "{a=" * 300 + "1" + "}" * 300, "a." * 400 + "b = 1"),
    *("0.1", "1.5", "4096", "4097", "1e308", "5e-324", '"\\ud800"', '"\\u0007"', "1_0", "0o7", "\x00", "=", "]", "#"),
)


@st.composite
def bytes_of(draw: st.DrawFn, original: bytes) -> bytes:
    """A file with some bytes changed, cut out, doubled, moved or put in, or cut off."""
    data = bytearray(original)
    for _ in range(draw(st.sampled_from(CHANGES))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        num = draw(st.sampled_from((1, 1, 2, 4, 8, 64, 1000)))
        kind = draw(st.integers(0, 7))
        if kind == 0:
            data[at : at + 1] = bytes([(data[at] if data else 0) ^ (1 << draw(st.integers(0, 7)))])
        elif kind == 1:
            data[at : at + num] = draw(st.sampled_from((b"\xff", b"\x00", b"\x7f", b"\x80", b"9", b"["))) * num
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + num]
        elif kind == 4:
            data[at:at] = data[at : at + num]
        elif kind == 5:
            place = draw(st.integers(0, max(0, len(data) - 1)))
            data[at : at + num] = data[place : place + num]
        elif kind == 6:
            data[at:at] = draw(st.binary(max_size=8))
        else:
            data[at : at + 4] = draw(st.integers(-(2**31), 2**31 - 1)).to_bytes(4, "little", signed=True)
    return bytes(data)


@st.composite
def json_of(draw: st.DrawFn, original: Any) -> bytes:
    """A JSON document with some values replaced, deleted, moved or doubled."""
    document = copy.deepcopy(original)
    for _ in range(draw(st.sampled_from(CHANGES))):
        free = document.get(draw(st.sampled_from(FREE))) if isinstance(document, dict) else None
        places = list(_places(free)) or list(_places(document))
        if not places:
            break
        inside, key = places[draw(st.integers(0, len(places) - 1))]
        kind = draw(st.integers(0, 9))
        if kind == 0:
            del inside[key]
        elif kind == 1:
            other, name = places[draw(st.integers(0, len(places) - 1))]
            inside[key] = copy.deepcopy(other[name])
        elif kind == 2 and isinstance(inside, dict):
            inside[draw(st.sampled_from(("", "x", "\x1b", "kind", "extra" * 1000)))] = inside[key]
        else:
            inside[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    text = json.dumps(document)
    text = text.replace(f'"{HUGE}"', "9" * 5000).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)
    if draw(st.integers(0, 19)) == 0:  # a key twice
        text = text.replace("{", '{"schema_version": 4, "gpus": 1, ', 1)
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> Any:
    """Where values stand in a document: what holds each, and its key or index."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield value, key
        yield from _places(each)


@st.composite
def table_of(draw: st.DrawFn, original: pa.Table) -> bytes:
    """A valid Parquet file with other columns, types, values, or written in another way."""
    names, columns = list(original.column_names), [column.combine_chunks() for column in original.columns]
    for _ in range(draw(st.sampled_from(CHANGES))):
        at = draw(st.integers(0, len(names) - 1))
        kind = draw(st.integers(0, 9))
        if kind == 0 and len(names) > 1:
            del names[at], columns[at]
        elif kind == 1:
            names[at] = draw(st.sampled_from(("x", "rank", "kind.x", "", "learned", "return", "\x1b", "lost")))
        elif kind == 2:
            names.append(names[at])
            columns.append(columns[at])
        elif kind == 3:
            num = len(columns[0])
            taken = draw(st.sampled_from(([], [0], list(range(num))[::-1], [0] * 100, list(range(num)) * 2)))
            columns = [column.take(pa.array([row for row in taken if row < num], pa.int64())) for column in columns]
        else:
            columns[at] = draw(st.sampled_from(COLUMNS))(len(columns[0]))
    return written(pa.Table.from_arrays(columns, names=names), draw(st.sampled_from(WRITERS)))


def written(table: pa.Table, options: Mapping[str, Any]) -> bytes:
    """A table as a Parquet file; with the defaults where it cannot be written in that way."""
    for chosen in (options, {}):
        made = io.BytesIO()
        try:
            parquet.write_table(table, made, **chosen)
        except (pa.ArrowException, OSError, ValueError, TypeError):
            continue
        return made.getvalue()
    return b"PAR1"


@st.composite
def toml_of(draw: st.DrawFn, original: str) -> bytes:
    """A profile with some values replaced, lines deleted, doubled or moved."""
    lines = original.splitlines()
    for _ in range(draw(st.sampled_from(CHANGES))):
        at, kind = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, 9))
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(draw(st.integers(0, len(lines))), lines[at])
        elif kind == 2:
            lines[at] = draw(st.sampled_from(TOML_VALUES))
        else:
            name, equals, _ = lines[at].partition("=")
            lines[at] = f"{name}{equals} {draw(st.sampled_from(TOML_VALUES))}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")
