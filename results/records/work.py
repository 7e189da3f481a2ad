"""What the environments of runs of still work did, and whether two runs did the same.

`work.parquet` has a row for each environment and mark: the hash of its actions, rewards and ends after so many steps
(`harness/metering/still.py`). Runs end after different numbers of steps, so each environment is compared at the last
mark that both runs have.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlbench.results.reading.tables import SERIES_ROWS, check_numbers, read_columns

WORK_FILE = "work.parquet"
COLUMNS = {"environment": "int64", "env_steps": "int64", "hash": "int64"}
Place = tuple[int, ...]
"""An environment's number in the run; that of an agent follows where it has several."""
Work = dict[Place, dict[int, int]]
"""Of each environment, by its number of steps, the hash of what it did."""


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
    """What a run did; empty where its work was not still. Raises ValueError, with the file's path, if it is damaged."""
    path = folder / WORK_FILE
    if not path.exists():
        return {}
    try:
        table = read_columns(path, COLUMNS, {"agent": "int64"}, most_rows=SERIES_ROWS)
        check_numbers(table)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    columns = {name: table[name].to_pylist() for name in table.column_names}
    places = zip(*(columns[name] for name in ("environment", "agent") if name in columns), strict=True)
    work: Work = {}
    for place, steps, word in zip(places, columns["env_steps"], columns["hash"], strict=True):
        work.setdefault(place, {})[steps] = word
    return work


def compare_work(one: Work, other: Work) -> Compared | None:
    """Compares two runs; None where they have no environment with a common mark."""
    shared = {place: max(marks) for place in one if (marks := one[place].keys() & other.get(place, {}).keys())}
    if not shared:
        return None
    different = [place for place, steps in shared.items() if one[place][steps] != other[place][steps]]
    return Compared(num_same=len(shared) - len(different), different=different, least_steps=min(shared.values()))
