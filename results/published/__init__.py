"""Figures that papers have published: one CSV file per table, whose comment lines name the paper, table and units.

`read` returns the rows as text, as the paper prints them: a field is empty where the paper leaves it empty.
"""

from __future__ import annotations

import csv
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Names of all tables, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def read(name: str) -> list[dict[str, str]]:
    """The rows of a table, by column. Raises ValueError for an unknown table, listing the known ones."""
    return list(csv.DictReader(line for line in _lines(name) if not line.startswith("#")))


def source(name: str) -> str:
    """Paper, table and units, in one line. Raises ValueError for an unknown table, listing the known ones."""
    return " ".join(line.removeprefix("#").strip() for line in _lines(name) if line.startswith("#"))


def _lines(name: str) -> list[str]:
    if name not in names():
        raise ValueError(f"published table {name!r}: unknown; known: {', '.join(names())}")
    return (FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
