"""Columns of Parquet files that somebody else may have written, bounded before they are decoded.

    file --> length of the footer --> what the footer says: rows, types, places --> headers of pages --> Arrow

A table of ours is flat: numbers, marks and names of spans, a row each. Only the columns that were asked for are looked
at. Numbers take 8 bytes a row at most, and names of spans are read as the few that there are; so with a bound on the
rows, and on what a page unpacks to, no file takes more memory than a large one of ours.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from results.pages import MOST_PAGES, check_pages
from results.untrusted import TABLE_BYTES, opened

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyarrow import parquet

MAGIC = b"PAR1"
FOOTER_BYTES = 4 * 2**20
"""Of what a file says of itself at its end: 100 columns in 1,000 groups of rows take that, ours have 50 in 10."""
SMALL_BYTES = 2**20
MOST_FIELDS = 4096
"""Of any list in a footer: columns, groups of rows. A schema that is nested deeper overflows the decoder's stack."""
SERIES_ROWS = 5_000_000
"""Of a series: 64 ranks for a day, an iteration a second."""
SPANS_ROWS = 10_000_000
"""Of spans: 128 ranks of 16 environments, the latest 4,096 of each."""
SPANS_FILE = "spans.parquet"
SPANS_COLUMNS = {
    "rank": "int64",
    "environment": "int64",
    "begin_s": "float64",
    "end_s": "float64",
    "kind": "string",
}
LONGEST_NAME = 100
"""Of a kind of span, in bytes."""
LARGEST = 10**15
"""Of a number, either way: floats hold all whole ones up to it, and squares and sums do not overflow."""
NUMBERS = frozenset({"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE"})
"""How Parquet stores numbers of 8 bytes or less."""
TEXT = "string"


def read_columns(
    path: Path, columns: Mapping[str, str], optional: Mapping[str, str] | None = None, *, most_rows: int
) -> pa.Table:
    """Some columns of a Parquet file that is part of its folder.

    Args:
        path: of the file.
        columns: Arrow's name of each column's type (`float64`, `int32`, `bool`, `string`), by its name.
        optional: the same of columns that need not be there.
        most_rows: of the file.

    Returns:
        The columns of those types, without anything else that the file says of them. Numbers may be null or NaN.

    Raises ValueError, without the file's name, for a file that has no such columns, or more than it may.
    """
    import pyarrow as pa

    try:
        with opened(path, TABLE_BYTES) as file:
            table = _read(file, columns, optional or {}, most_rows)
        table.validate(full=True)
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as problem:
        raise ValueError(str(problem).partition("\n")[0]) from None
    return table


def read_frame(
    path: Path, columns: Mapping[str, str], optional: Mapping[str, str] | None = None, *, most_rows: int
) -> pd.DataFrame:
    """As `read_columns`, for pandas; raises ValueError too where something is null, or no finite number."""
    table = read_columns(path, columns, optional, most_rows=most_rows)
    check_numbers(table)
    frame: pd.DataFrame = table.to_pandas()
    return frame


def check_numbers(table: pa.Table) -> None:
    """Raises ValueError where something is null, or a number is not finite or beyond `LARGEST`."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise ValueError(f"column {name!r} lacks numbers")
        _check_size(column, name)


def _check_size(column: pa.ChunkedArray, name: str) -> None:
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        within = pc.and_(pc.greater_equal(column, -LARGEST), pc.less_equal(column, LARGEST))  # NaN is neither
        if not pc.all(within, min_count=0).as_py():
            raise ValueError(f"column {name!r} has no finite numbers up to {LARGEST:,}")


def _read(file: BinaryIO, columns: Mapping[str, str], optional: Mapping[str, str], most_rows: int) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    size = _check_footer(file)
    source: Any = pa.PythonFile(file, mode="r")
    if size <= SMALL_BYTES:  # read at once, which is faster
        file.seek(0)
        file = io.BytesIO(file.read(size))
        source = pa.BufferReader(file.getbuffer())
    texts = [name for name, kind in (*columns.items(), *optional.items()) if kind == TEXT]
    with parquet.ParquetFile(
        source,
        read_dictionary=texts,
        thrift_string_size_limit=FOOTER_BYTES,
        thrift_container_size_limit=MOST_FIELDS,
    ) as parts:
        places = _places(parts.metadata, columns, optional)
        _check_groups(file, parts.metadata, places, size, most_rows)
        table = parts.read(columns=list(places), use_threads=False)
    kinds = {**optional, **columns}
    made = [_cast(table[name], name, kinds[name]) for name in places]
    return pa.Table.from_arrays(made, names=list(places))


def _check_footer(file: BinaryIO) -> int:
    """The size of a file whose footer is as long as it may be."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    if len(tail) < 8 or tail[4:] != MAGIC:
        raise ValueError("is no Parquet file, or cut off")
    length = int.from_bytes(tail[:4], "little")
    if length > min(FOOTER_BYTES, size - 12):
        raise ValueError(f"has a footer of {length:,} bytes, must be at most {min(FOOTER_BYTES, size - 12):,}")
    return size


def _places(metadata: parquet.FileMetaData, columns: Mapping[str, str], optional: Mapping[str, str]) -> dict[str, int]:
    """Where the columns stand that were asked for, by name; all flat, and of a type of which a table of ours is."""
    schema = metadata.schema
    found: dict[str, int] = {}
    for place in range(metadata.num_columns):
        column = schema.column(place)
        name = column.path.partition(".")[0]
        kind = columns.get(name) or optional.get(name)
        if kind is None:
            continue
        stored = frozenset({"BYTE_ARRAY"}) if kind == TEXT else NUMBERS
        if (
            name in found
            or column.path != name
            or column.max_repetition_level
            or column.max_definition_level > 1
            or column.physical_type not in stored
        ):
            raise ValueError(f"column {name!r} is no column of {'texts' if kind == TEXT else 'numbers'}")
        found[name] = place
    missing = [name for name in columns if name not in found]
    if missing:
        raise ValueError(f"column {missing[0]!r} is missing")
    return found


def _check_groups(
    file: BinaryIO, metadata: parquet.FileMetaData, places: Mapping[str, int], size: int, most_rows: int
) -> None:
    """Raises ValueError unless all groups of rows hold what the footer says of the whole, within bounds."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in groups]
    if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
        raise ValueError("has a footer that contradicts itself")
    if sum(rows) > most_rows:
        raise ValueError(f"has {sum(rows):,} rows, must have at most {most_rows:,}")
    left = MOST_PAGES
    for group in groups:
        for name, place in places.items():
            chunk: Any = group.column(place)
            if chunk.num_values != group.num_rows or chunk.file_path:
                raise ValueError(f"column {name!r} has {chunk.num_values:,} values in {group.num_rows:,} rows")
            begins = [chunk.data_page_offset, chunk.dictionary_page_offset or 0]
            begin = min(each for each in begins if each > 0) if max(begins) > 0 else 0
            end = begin + chunk.total_compressed_size
            if not 0 < begin <= end <= size:
                raise ValueError(f"column {name!r} lies outside the file")
            try:
                left -= check_pages(file, begin, end)
            except ValueError as problem:
                raise ValueError(f"column {name!r} {problem}") from None
            if left < 0:
                raise ValueError(f"has more than {MOST_PAGES:,} pages")


def _cast(column: pa.ChunkedArray, name: str, kind: str) -> pa.ChunkedArray:
    """A column of the type that was asked for; texts only where each that there is, is short."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if kind == TEXT:
        chunks: Sequence[Any] = column.chunks
        for chunk in chunks:
            chunk.validate(full=True)
            names = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            if (pc.max(pc.binary_length(names)).as_py() or 0) > LONGEST_NAME:
                raise ValueError(f"column {name!r} has a text of more than {LONGEST_NAME} bytes")
    return column.cast(kind)
