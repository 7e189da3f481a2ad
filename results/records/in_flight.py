"""Samples in flight: those that a run has collected, and neither learned nor discarded.

Where collecting and learning go on at the same time, their number at the end of an iteration is never quite the same.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlbench.results.reading.tables import SERIES_ROWS, check_numbers, read_columns
from rlbench.results.records.parts import SERIES_FILE

Floats = npt.NDArray[np.float64]
COLUMNS = {"rank": "int32", "end_s": "float64", "learned": "int64"}
TOLD = {"env_steps": "int64", "discarded": "int64"}
"""Columns that the series of earlier versions lack, and those of trainers that do not report what they discarded."""


def read_in_flight(run_folder: Path, num_ranks: int, moments: Floats) -> Floats | None:
    """Samples in flight at moments of the run's clock, less those that were when its first iteration began.

    Args:
        run_folder: with the series.
        num_ranks: of the run; a rank may collect what others learn.
        moments: seconds, [M].

    Returns:
        [M], over all ranks; between the ends of a rank's iterations a line. None where not all ranks tell.

    Raises ValueError naming a damaged file.
    """
    path = run_folder / SERIES_FILE
    if not path.exists():
        return None
    try:
        table = read_columns(path, COLUMNS, TOLD, most_rows=SERIES_ROWS)
        check_numbers(table)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    if not TOLD.keys() <= set(table.column_names):
        return None
    columns = {name: np.from_dlpack(table[name].combine_chunks()).astype(np.float64) for name in table.column_names}
    if len(np.unique(columns["rank"])) != num_ranks:
        return None
    order = np.lexsort((columns["end_s"], columns["rank"]))
    ends = columns["end_s"][order]
    change = (columns["env_steps"] - columns["learned"] - columns["discarded"])[order]
    of_ranks = np.split(np.arange(len(order)), np.flatnonzero(np.diff(columns["rank"][order])) + 1)
    in_flight = np.zeros(len(moments))
    for rows in of_ranks:
        in_flight += np.interp(moments, ends[rows], np.cumsum(change[rows]))
    return in_flight
