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

from results.reading.pages import FOOTER_BYTES, MOST_PAGES, Footer, check_pages, read_footer
from results.reading.untrusted import TABLE_BYTES, opened

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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
BOOLEAN, INT32, INT64, _, FLOAT, DOUBLE, BYTE_ARRAY = range(7)
NUMBERS = frozenset({BOOLEAN, INT32, INT64, FLOAT, DOUBLE})
"""How Parquet stores numbers of 8 bytes or less."""
TEXT = "string"
OF_DECODER = (OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, MemoryError)
"""What Python makes of an exception of C++, in which Arrow's decoder may end, beside Arrow's own."""


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
    except (pa.ArrowException, *OF_DECODER) as problem:
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
    import numpy as np
    import pyarrow as pa

    if len(column) and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        values = np.from_dlpack(column.combine_chunks())  # `to_numpy` would import pandas
        if not (values.min() >= -LARGEST and values.max() <= LARGEST):  # NaN is neither
            raise ValueError(f"column {name!r} has no finite numbers up to {LARGEST:,}")


def _read(file: BinaryIO, columns: Mapping[str, str], optional: Mapping[str, str], most_rows: int) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    size = file.seek(0, 2)
    source: Any = pa.PythonFile(file, mode="r")
    if size <= SMALL_BYTES:  # read at once, which is faster
        file.seek(0)
        file = io.BytesIO(file.read(size))
        source = pa.BufferReader(file.getbuffer())
    footer = read_footer(file, size)
    there = {name: kind for name, kind in (*columns.items(), *optional.items()) if name in footer.columns}
    missing = [name for name in columns if name not in there]
    if missing:
        raise ValueError(f"column {missing[0]!r} is missing")
    if footer.num_rows > most_rows:
        raise ValueError(f"has {footer.num_rows:,} rows, must have at most {most_rows:,}")
    _check_columns(file, footer, there)
    with parquet.ParquetFile(
        source,
        read_dictionary=[name for name, kind in there.items() if kind == TEXT],
        thrift_string_size_limit=FOOTER_BYTES,
        thrift_container_size_limit=MOST_FIELDS,
    ) as parts:
        table = parts.read(columns=list(there), use_threads=False)
    return pa.Table.from_arrays([_cast(table[name], name, kind) for name, kind in there.items()], names=list(there))


def _check_columns(file: BinaryIO, footer: Footer, kinds: Mapping[str, str]) -> None:
    """Raises ValueError unless the columns are flat, of types of which ours are, and of pages within bounds."""
    left = MOST_PAGES
    for name, kind in kinds.items():
        column = footer.columns[name]
        if column is None or column.stored not in (frozenset({BYTE_ARRAY}) if kind == TEXT else NUMBERS):
            raise ValueError(f"column {name!r} is no column of {'texts' if kind == TEXT else 'numbers'}")
        try:
            for (num_values, begin, end), num_rows in zip(footer.chunks(column), footer.groups, strict=True):
                if num_values != num_rows:
                    raise ValueError(f"has {num_values:,} values in {num_rows:,} rows")  # noqa: TRY301
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
    return column if column.type == kind else column.cast(kind)
