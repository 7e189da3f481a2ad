"""Window parts: the iterations of a run, all ranks taken together.

Each rank writes when its iterations began and ended and how many fresh env steps each learned (`series.parquet`). The
parts join the ranks and lie end to end, so that no second between two iterations is lost from a rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SERIES_FILE = "series.parquet"
SERIES_COLUMNS = {"rank": "int32", "iteration": "int32", "begin_s": "float64", "end_s": "float64", "learned": "int64"}
"""The columns that parts are made of; a series may hold more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One iteration of all ranks."""

    iteration: int
    begin_s: float
    """When the iteration before it had ended on every rank (the first: when the first rank began)."""
    end_s: float
    """When the last rank ended it."""
    learned: int
    """Fresh env steps learned, over all ranks."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        if not self.end_s > self.begin_s:
            raise ValueError(
                f"iteration {self.iteration}: must end ({self.end_s} s) after it begins ({self.begin_s} s)"
            )

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_s - self.begin_s

    @property
    def rate(self) -> float:
        """Env steps learned per second."""
        return self.learned / self.seconds


def join_ranks(rows: Iterable[tuple[int, int, float, float, int]]) -> list[Part]:
    """Makes parts from the ranks' iterations.

    An iteration that some rank has not ended is left out, and so are all after it.

    Args:
        rows: rank, iteration, begin_s, end_s, learned; in any order, on one clock.
    """
    by_iteration: dict[int, dict[int, tuple[float, float, int]]] = {}
    ranks = set()
    for rank, iteration, begin_s, end_s, learned in rows:
        by_iteration.setdefault(iteration, {})[rank] = (begin_s, end_s, learned)
        ranks.add(rank)
    parts: list[Part] = []
    for iteration in sorted(by_iteration):
        of_ranks = by_iteration[iteration]
        if of_ranks.keys() != ranks:
            break
        parts.append(
            Part(
                iteration=iteration,
                begin_s=parts[-1].end_s if parts else min(begin_s for begin_s, _, _ in of_ranks.values()),
                end_s=max(end_s for _, end_s, _ in of_ranks.values()),
                learned=sum(learned for _, _, learned in of_ranks.values()),
            )
        )
    return parts


def read_parts(run_folder: Path) -> list[Part]:
    """Reads the parts of a run; none when it left no series. Raises ValueError naming a damaged file."""
    path = run_folder / SERIES_FILE
    if not path.exists():
        return []
    import pyarrow as pa
    from pyarrow import parquet

    try:
        columns = parquet.read_table(path, columns=list(SERIES_COLUMNS)).to_pydict()
        return join_ranks(zip(*(columns[name] for name in SERIES_COLUMNS), strict=True))
    except (pa.ArrowException, OSError, KeyError, ValueError) as problem:
        first_line = str(problem).partition("\n")[0]
        raise ValueError(f"{path}: cannot be read ({first_line}); move its run folder elsewhere or delete it") from None
