"""Reads columns of Parquet files that somebody else may have written; their sizes are checked before they are decoded.

    file --> length of the footer --> what the footer says: rows, types, places --> page headers --> Arrow

Our tables are flat: each row holds numbers, booleans and span names. Only the requested columns are checked and read. A
number takes at most 8 bytes, and span names are read as a dictionary. With the bounds on the number of rows and on the
unpacked size of a page, no file takes more memory than a large one of ours.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rlbench.results.reading.pages import FOOTER_BYTES, MOST_PAGES, Footer, check_pages, read_footer
from rlbench.results.reading.untrusted import TABLE_BYTES, opened

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SMALL_BYTES = 2**20
MOST_FIELDS = 4096
"""Maximum length of any list in a footer: columns, row groups. A schema with more levels overflows Arrow's stack."""
SERIES_ROWS = 5_000_000
"""Maximum rows of a series: 57 ranks for a day, with an iteration per second."""
SPANS_ROWS = 10_000_000
"""Maximum rows of spans: the latest 4,096 of each of 16 environments of 128 ranks take 8.4 million."""
SPANS_FILE = "spans.parquet"
SPANS_COLUMNS = {
    "rank": "int64",
    "environment": "int64",
    "begin_s": "float64",
    "end_s": "float64",
    "kind": "string",
}
LONGEST_NAME = 100
"""Maximum length of the name of a kind of span, in bytes."""
LARGEST = 10**15
"""Maximum absolute value of a number: floats hold all whole numbers up to it, and squares and sums do not overflow."""
BOOLEAN, INT32, INT64, _, FLOAT, DOUBLE, BYTE_ARRAY = range(7)
NUMBERS = frozenset({BOOLEAN, INT32, INT64, FLOAT, DOUBLE})
"""Parquet's physical types of numbers of 8 bytes or less."""
TEXT = "string"
OF_DECODER = (OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, MemoryError)
"""Python exceptions that C++ exceptions of Arrow's decoder may become, besides Arrow's own."""


def read_columns(
    path: Path, columns: Mapping[str, str], optional: Mapping[str, str] | None = None, *, most_rows: int
) -> pa.Table:
    """Reads some columns of a Parquet file that is part of its folder.

    Args:
        path: path of the file.
        columns: column names, with Arrow's name of each type (`float64`, `int32`, `bool`, `string`).
        optional: the same for columns that may be missing.
        most_rows: maximum number of rows in the file.

    Returns:
        The columns, cast to those types and without the file's metadata. Numbers may be null or NaN.

    Raises ValueError, without the file's name, if a column is missing or of another kind, or a bound is exceeded.
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
    """Like `read_columns`, for pandas; also raises ValueError for a null, or a number that `check_numbers` refuses."""
    table = read_columns(path, columns, optional, most_rows=most_rows)
    check_numbers(table)
    frame: pd.DataFrame = table.to_pandas()
    return frame


def number_columns(path: Path) -> list[str]:
    """The names of a Parquet file's flat columns of numbers, in its order; booleans are none.

    A name of more than `LONGEST_NAME` bytes is left out. Raises ValueError, without the file's name.
    """
    try:
        with opened(path, TABLE_BYTES) as file:
            footer = read_footer(file, file.seek(0, 2))
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(str(problem)) from None
    wanted = NUMBERS - {BOOLEAN}
    return [
        name
        for name, column in footer.columns.items()
        if column is not None and column.stored in wanted and len(name.encode()) <= LONGEST_NAME
    ]


def check_numbers(table: pa.Table) -> None:
    """Raises ValueError if a value is null, or if a number is not finite or beyond `LARGEST`."""
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
    if size <= SMALL_BYTES:  # reading it in one go is faster
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
    """Raises ValueError unless the columns are flat, of a type that fits their kind, and have pages within bounds."""
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
    """Casts a column to the requested type. Raises ValueError for a text of more than `LONGEST_NAME` bytes."""
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
