"""The two lanes of tests, and how their work is shared out.

`nox -s tests` is what one runs after every change: all but what is marked `deep`. `nox -s deep` is everything. What is
in `deep` alone has a sample of its own in the other: `sampled` makes one of a matrix. Both lanes run files side by side
(pytest-xdist), a file always in one process, so that what is shared in a module is made once; those that start
processes go first, and those that only compute fill what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

deep = pytest.mark.deep
"""For a test, or a cell of a matrix, that `nox -s deep` alone runs."""


def sampled(cells: Iterable[Any], every: int = 6, first: int = 0) -> list[Any]:
    """The cells of a matrix for `pytest.mark.parametrize`, of which one in `every` is in both lanes, the rest deep."""
    return [_cell(cell, is_deep=(number - first) % every != 0) for number, cell in enumerate(cells)]


def _cell(cell: Any, *, is_deep: bool) -> Any:
    values = cell.values if hasattr(cell, "marks") else cell if isinstance(cell, tuple) else (cell,)
    marks = [*getattr(cell, "marks", ()), *([deep] if is_deep else [])]
    return pytest.param(*values, marks=marks, id=getattr(cell, "id", None))
