"""What the environments of runs of still work did, and whether two runs did the same.

`work.parquet` has a row for each environment and mark: the hash of its actions, rewards and ends after so many steps
(`harness/metering/still.py`). Runs end after different numbers of steps, so each environment is compared at the last
mark that both runs have. Somebody else may have written the file, with millions of rows, so they stay in arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlbench.results.reading.tables import SERIES_ROWS, check_numbers, read_columns

WORK_FILE = "work.parquet"
COLUMNS = {"environment": "int64", "env_steps": "int64", "hash": "int64"}
Place = tuple[int, ...]
"""An environment's number in the run; that of an agent follows where it has several."""
Work = npt.NDArray[np.int64]
"""Of each mark, [3 or 4, marks]: the place, the number of steps, and the hash of what was done up to there."""
ReadWork = Callable[[Path], Work]
"""`read_work`, or what remembers its answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """What two runs did."""

    num_same: int
    """Environments that did the same up to the last mark that both runs have."""
    different: list[Place]
    """The others."""
    least_steps: int
    """The fewest steps up to which an environment was compared."""


def read_work(folder: Path) -> Work:
    """What a run did; without marks if its work was not still. Raises ValueError, with the file's path, for damage."""
    path = folder / WORK_FILE
    if not path.exists():
        return np.empty((len(COLUMNS), 0), np.int64)
    try:
        table = read_columns(path, COLUMNS, {"agent": "int64"}, most_rows=SERIES_ROWS)
        check_numbers(table)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    names = [name for name in ("environment", "agent", "env_steps", "hash") if name in table.column_names]
    return np.stack([np.from_dlpack(table[name].combine_chunks()) for name in names])


def compare_work(one: Work, other: Work) -> Compared | None:
    """Compares two runs; None where they have no environment with a common mark."""
    if len(one) != len(other):
        return None  # only one of them has agents
    both = np.concatenate([one, other], axis=1)
    order = np.lexsort(both[-2::-1])  # by place, then steps; of equal ones, those of `one` stay first
    sides = np.repeat((0, 1), (one.shape[1], other.shape[1]))
    rows = np.stack([*both[:-1], sides, both[-1]]).take(order, axis=1)  # place, steps, side, hash
    rows = rows.compress(_last_of(rows[:-1]), axis=1)  # of a mark that a file has twice, the last row counts
    common = np.flatnonzero(~_last_of(rows[:-2]))  # rows of `one`; that of `other` follows
    common = common[_last_of(rows[:-3].take(common, axis=1))]
    if not len(common):
        return None
    differ = rows[-1, common] != rows[-1, common + 1]
    return Compared(
        num_same=int(np.count_nonzero(~differ)),
        different=[tuple(place) for place in rows[:-3, common[differ]].T.tolist()],
        least_steps=int(rows[-3, common].min()),
    )


def _last_of(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of the columns of `keys`, which are sorted, are the last of several that are equal."""
    is_last = np.ones(keys.shape[1], np.bool_)
    is_last[:-1] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return is_last
