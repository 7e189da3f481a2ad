"""Throughput over revisions: one row for each revision, machine class and cell, and the points where it changed.

A history is a text file of JSON lines that can be kept in a repository. Figures of different machine classes are never
mixed: a series is one cell on one class.

Change points are found by binary segmentation. The split whose two means lie furthest apart, in units of the spread
around them, is a change point if few shuffles of the series have a split as good; both parts are then searched in the
same way. The permutation test is that of Matteson and James, A nonparametric approach for multiple change point
analysis, JASA 109, 2014; MongoDB watches its builds with it (Daly et al., ICPE 2020). Each search adds its own chance
of error: `LEVEL` bounds the chance of a false change point in a series without any change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbench.results.fairness.aspects import gpus_of, usable_cores
from rlbench.results.reading.untrusted import HISTORY_BYTES, parse_json, read_text
from rlbench.results.records import labels
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun, write_whole
from rlbench.results.summary.cells import CellRuns, make_cells
from rlbench.results.summary.document import HISTORY_VERSION, ChangePoint, HistoryRow, HistorySeries

LEVEL = 0.01
NUM_SHUFFLES = 999
BLOCK_VALUES = 2**22
"""Number of values that are shuffled at once."""
LEAST_SIDE = 2
"""Minimum number of revisions on either side of a change point: one alone may be a bad day."""


def machine_class(run: RunRecord) -> str:
    """The class of machines whose figures may be mixed: processor, usable cores, GPUs, and number of machines."""
    cores = usable_cores(run)
    gpus = [str(gpu.get("name")) for gpu in gpus_of(run)]
    named = [f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)] if run.cell.device == "cuda" else []
    known = "unknown cores" if cores is None else f"{cores:g} cores"
    machines = [f"{len(run.nodes)} machines"] if len(run.nodes) > 1 else []
    return ", ".join([str(run.machine.get("cpu_model") or "unknown processor"), known, *named, *machines])


def rows_of(runs: Sequence[StoredRun]) -> list[HistoryRow]:
    """A row for each cell that has a rate and one commit; of several sweeps of a commit the newest counts.

    Cells that ran from a changed working tree belong to no revision, and are left out.
    """
    found: dict[tuple[str, ...], HistoryRow] = {}
    for cell in make_cells(runs):
        commits = {run.record.commit for run in cell.finished}
        commit = commits.pop() if len(commits) == 1 else None
        if commit is None or commit.endswith("-dirty"):
            continue
        row = _revision(cell, commit)
        if row.key not in found or found[row.key].measured_at < row.measured_at:
            found[row.key] = row
    return list(found.values())


def _revision(cell: CellRuns, commit: str) -> HistoryRow:
    own, first = cell.summary, cell.finished[0].record
    assert own.steps_per_s is not None
    return HistoryRow(
        commit=commit,
        measured_at=min(_utc(run.record.started_at) for run in cell.finished),
        machine=machine_class(first),
        system=own.system,
        scenario=own.scenario,
        workload=own.workload,
        gpus=own.gpus,
        device=own.device,
        length=_length(first),
        kind=own.kind,
        steps_per_s=own.steps_per_s.value,
        low=own.steps_per_s.low,
        high=own.steps_per_s.high,
        env_steps_per_s=own.env_steps_per_s,
        num_runs=len(cell.finished),
    )


def _length(run: RunRecord) -> str:
    """The limits and the protocol of a run; runs with others belong to another series."""
    limits = run.configuration.get("limits")
    known = limits if isinstance(limits, dict) else {}
    given = [f"{name}={value}" for name, value in sorted(known.items()) if value is not None and name != "kind"]
    return " ".join([f"protocol={run.cell.protocol}", *given])


def _utc(moment: str) -> str:
    """A time in UTC, as text that sorts by time: time zones differ between machines, and change in summer."""
    return datetime.fromisoformat(moment).astimezone(UTC).isoformat(timespec="seconds")


def read(path: Path) -> list[HistoryRow]:
    """Reads the rows of a history; none if the file does not exist. Raises ValueError if it is damaged or newer."""
    if not path.exists():
        return []
    rows = []
    try:
        lines = read_text(path, HISTORY_BYTES, inside=False).split("\n")
    except ValueError as problem:
        raise ValueError(f"{path}: cannot be read ({problem})") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            rows.append(_parsed(path, number, line))
    return rows


def _parsed(path: Path, number: int, line: str) -> HistoryRow:
    try:
        document: Any = parse_json(line)
        version = document["history_version"]
        if version <= HISTORY_VERSION:
            return HistoryRow.model_validate(document)
    except (ValueError, KeyError, TypeError) as problem:
        said = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise ValueError(f"{path}, line {number}: is no row of a history ({said})") from None
    raise ValueError(f"{path}, line {number}: has version {version}, this rlbench reads up to {HISTORY_VERSION}")


def merged(old: Iterable[HistoryRow], new: Iterable[HistoryRow]) -> list[HistoryRow]:
    """All rows, only the newest of each key, in the order in which they were measured."""
    kept: dict[tuple[str, ...], HistoryRow] = {}
    for row in (*old, *new):
        if row.key not in kept or kept[row.key].measured_at <= row.measured_at:
            kept[row.key] = row
    return sorted(kept.values(), key=lambda row: (row.measured_at, row.key))


def write(path: Path, rows: Sequence[HistoryRow]) -> None:
    """Writes a history; the file appears complete or not at all. Raises ValueError if it cannot be written."""
    try:
        write_whole(path, "".join(f"{row.model_dump_json()}\n" for row in rows))
    except OSError as problem:
        raise ValueError(f"{path}: cannot be written ({problem.strerror or problem})") from None


def series_of(rows: Sequence[HistoryRow]) -> list[HistorySeries]:
    """Groups rows into series, and finds their change points."""
    groups: Mapping[tuple[str, ...], list[HistoryRow]] = defaultdict(list)
    first: dict[str, str] = {}  # a revision keeps its place when some of its cells are measured again
    for row in sorted(rows, key=lambda row: row.measured_at):
        first.setdefault(row.commit, row.measured_at)
    for row in sorted(rows, key=lambda row: (first[row.commit], row.measured_at)):
        groups[row.series].append(row)
    made = []
    for group in groups.values():
        rates = np.log([row.steps_per_s for row in group])
        places = change_points(rates, np.random.default_rng(0))
        ends = [0, *places, len(group)]
        levels = [float(np.mean(rates[begin:end])) for begin, end in pairwise(ends)]
        changes = [
            ChangePoint(commit=group[place].commit, ratio=float(np.exp(levels[at + 1] - levels[at])))
            for at, place in enumerate(places)
        ]
        last = group[-1]
        name = f"{last.system}, {last.scenario}, {last.workload}, {labels.ranks(last.gpus, last.device)}, {last.length}"
        made.append(HistorySeries(name=name, machine=last.machine, rows=group, changes=changes))
    return made


def change_points(values: NDArray[np.float64], generator: np.random.Generator) -> list[int]:
    """Where the mean of a series [n] changes: the first index of each new level, ascending."""
    if len(values) < 2 * LEAST_SIDE:
        return []
    (scores,) = _scores(values[None])
    place = LEAST_SIDE + int(np.argmax(scores))
    as_good, left = 0, NUM_SHUFFLES
    while left:  # in blocks: all shuffles of a long history at once would take gigabytes
        num = min(left, max(1, BLOCK_VALUES // len(values)))
        shuffles = generator.permuted(np.broadcast_to(values, (num, len(values))), axis=1)
        as_good += int((_scores(shuffles).max(1) >= scores.max()).sum())
        left -= num
    if (1 + as_good) / (1 + NUM_SHUFFLES) > LEVEL:
        return []
    before = change_points(values[:place], generator)
    after = change_points(values[place:], generator)
    return [*before, place, *(place + each for each in after)]


def _scores(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """The score of each split of some series [S, n]: squared distance of the means / squared spread around them.

    Splits are at `LEAST_SIDE` to n - `LEAST_SIDE`: the scores are [S, n - 2 * `LEAST_SIDE` + 1].
    """
    num = series.shape[1]
    sums, squares = np.cumsum(series, 1), (series**2).sum(1, keepdims=True)
    left = np.arange(LEAST_SIDE, num - LEAST_SIDE + 1)
    right = num - left
    of_left = sums[:, left - 1]
    of_right = sums[:, -1:] - of_left
    between = (of_left / left - of_right / right) ** 2 * left * right / num
    within = squares - of_left**2 / left - of_right**2 / right
    scores: NDArray[np.float64] = between / np.maximum(within, 1e-12 * squares + 1e-300)  # equal values: rounding
    return scores
