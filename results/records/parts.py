"""Window parts: the iterations of a run, with all ranks taken together.

`series.parquet` says when each iteration of each rank began and ended, and how many fresh env steps it learned. The
parts join the ranks and lie end to end, so that a rate includes the time between iterations.

Where ranks go in step, a part is an iteration. Where each rank counts its own iterations (gossip), iteration i of one
rank has nothing to do with iteration i of another. Time is then cut where the surviving rank with the fewest iterations
ends each of them, so that every part holds about one iteration or more of every rank. A rank's steps are spread evenly
over each of its iterations. The parts end when the first surviving rank ends, because the rate falls after that for
this reason alone. A lost rank counts up to its loss.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlbench.results.reading.tables import SERIES_ROWS, check_numbers, read_columns

SERIES_FILE = "series.parquet"
SERIES_COLUMNS = {"rank": "int32", "iteration": "int32", "begin_s": "float64", "end_s": "float64", "learned": "int64"}
"""The columns that parts are made from; a series may hold more."""
IN_STEP, LOST = "in_step", "lost"
"""Optional columns: whether the run's ranks go in step, and whether the row's rank was lost. Where a series lacks them,
the ranks went in step and none was lost."""

LEAST_S = 1e-9
"""Minimum length of a part in seconds: clocks resolve no less, and rates over less time would be useless."""

Row = tuple[int, int, float, float, int]
"""rank, iteration, begin_s, end_s, learned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One iteration of all ranks."""

    iteration: int
    """Number of the iteration; where ranks do not go in step, that of the rank with the fewest iterations."""
    begin_s: float
    """When the part before it ended; for the first part, when the first rank began."""
    end_s: float
    """When the last rank ended the iteration; where ranks do not go in step, when the rank with the fewest did."""
    learned: int
    """Fresh env steps learned, over all ranks."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        if not self.end_s - self.begin_s >= LEAST_S:
            raise ValueError(
                f"iteration {self.iteration}: must end ({self.end_s} s) after it begins ({self.begin_s} s)"
            )

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.end_s - self.begin_s

    @property
    def rate(self) -> float:
        """Env steps learned per second."""
        return self.learned / self.seconds


def join_ranks(rows: Iterable[Row], *, in_step: bool = True, lost: Collection[int] = ()) -> list[Part]:
    """Makes parts from the ranks' iterations.

    In step, an iteration that some surviving rank has not ended is left out, and so are all iterations after it. A lost
    rank counts in the iterations that it ended.

    Args:
        rows: rank, iteration, begin_s, end_s and learned of each iteration; in any order, on one clock.
        in_step: whether the ranks go through the same iterations together.
        lost: ranks that ended early while others went on.
    """
    by_rank: dict[int, list[Row]] = {}
    for row in sorted(rows):
        by_rank.setdefault(row[0], []).append(row)
    if by_rank.keys() <= set(lost):  # no rank went on
        return []
    return _join_in_step(by_rank, lost) if in_step else _join_by_time(by_rank, lost)


def _join_in_step(by_rank: dict[int, list[Row]], lost: Collection[int]) -> list[Part]:
    by_iteration: dict[int, dict[int, Row]] = {}
    for rank, rows in by_rank.items():
        for row in rows:
            by_iteration.setdefault(row[1], {})[rank] = row
    needed = by_rank.keys() - set(lost)
    parts: list[Part] = []
    for iteration in sorted(by_iteration):
        of_ranks = by_iteration[iteration]
        if not needed <= of_ranks.keys():
            break
        parts.append(
            Part(
                iteration=iteration,
                begin_s=parts[-1].end_s if parts else min(begin_s for _, _, begin_s, _, _ in of_ranks.values()),
                end_s=max(end_s for _, _, _, end_s, _ in of_ranks.values()),
                learned=sum(learned for *_, learned in of_ranks.values()),
            )
        )
    return parts


def _join_by_time(by_rank: dict[int, list[Row]], lost: Collection[int]) -> list[Part]:
    surviving = {rank: rows for rank, rows in by_rank.items() if rank not in lost}
    begin_s = min(rows[0][2] for rows in by_rank.values())
    first_end_s = min(rows[-1][3] for rows in surviving.values())
    fewest = min(surviving.values(), key=len)
    cuts = [end_s for _, _, _, end_s, _ in fewest if end_s <= first_end_s] or [first_end_s]
    ranks = [_Cumulative(rows) for rows in by_rank.values()]
    # Whole steps, rounded so that the parts sum to what was learned up to each cut.
    totals = [round(sum(rank.at(moment) for rank in ranks)) for moment in (begin_s, *cuts)]
    return [
        Part(iteration=number, begin_s=begin, end_s=end, learned=after - before)
        for number, (begin, end, before, after) in enumerate(
            zip((begin_s, *cuts), cuts, totals, totals[1:], strict=False)
        )
    ]


class _Cumulative:
    """Fresh env steps that one rank has learned by any moment: linear between the ends of its iterations."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._times = [rows[0][2]]
        self._counts = [0]
        for _, _, _, end_s, learned in rows:
            self._times.append(end_s)
            self._counts.append(self._counts[-1] + learned)

    def at(self, moment: float) -> float:
        """Steps learned by then: 0 before the first iteration, all of them after the last."""
        after = bisect_right(self._times, moment)
        if after in {0, len(self._times)}:
            return self._counts[max(after - 1, 0)]
        begin, end = self._times[after - 1], self._times[after]
        low, high = self._counts[after - 1], self._counts[after]
        return low + (high - low) * (moment - begin) / (end - begin)


def read_parts(run_folder: Path) -> list[Part]:
    """Reads the parts of a run; an empty list if it left no series. Raises ValueError naming a damaged file."""
    path = run_folder / SERIES_FILE
    if not path.exists():
        return []
    try:
        table = read_columns(path, SERIES_COLUMNS, {IN_STEP: "bool", LOST: "bool"}, most_rows=SERIES_ROWS)
        check_numbers(table)
        columns = {name: table[name].to_pylist() for name in table.column_names}
        rows = zip(*(columns[name] for name in SERIES_COLUMNS), strict=True)
        lost = {rank for rank, is_lost in zip(columns["rank"], columns.get(LOST, ()), strict=False) if is_lost}
        return join_ranks(rows, in_step=all(columns.get(IN_STEP, ())), lost=lost)
    except ValueError as problem:
        raise ValueError(f"{path}: cannot be read ({problem}); move its run folder elsewhere or delete it") from None
