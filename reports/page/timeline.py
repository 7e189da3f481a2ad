"""The iterations that worker timelines show: which runs, which of their iterations, and all spans of these.

For each sweep, scenario and workload it takes the most GPUs up to `MOST_GPUS`, the first seed of each system, and the
last iteration in the window whose spans were all kept (`docs/run-folder.md`), with as many of its neighbours as there
is room for. `reports/page/timeline_data.py` makes of them what the page's script draws.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlbench.harness.metering.meter_file import SPAN_CAPACITY, env_span_capacity
from rlbench.harness.timelines.chain import OWN, SECOND
from rlbench.harness.timelines.timelines import Spans
from rlbench.reports.page.charts.works import Placed, ScalingSeries, Work, works
from rlbench.results.reading.tables import (
    SERIES_ROWS,
    SPANS_COLUMNS,
    SPANS_FILE,
    SPANS_ROWS,
    check_numbers,
    read_columns,
)
from rlbench.results.reading.untrusted import RECORD_BYTES, read_json
from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import RUN_FILE
from rlbench.results.summary.document import Iteration, Summary, Thread

if TYPE_CHECKING:
    import pandas as pd

SERIES_COLUMNS = {"rank": "int64", "iteration": "int64", "begin_s": "float64", "end_s": "float64"}
MOST_GPUS = 64
MOST_SPANS = 400_000
"""Maximum number of spans in all timelines of a page. Iterations that do not fit are left out, then environments."""

Lane = tuple[int, int]
"""Rank and environment; `OWN` or `SECOND` instead of an environment for a thread of the rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """An iteration whose spans are there."""

    number: int
    begin_s: float
    end_s: float
    counts: bool
    """Whether it is in the window."""
    cut: bool
    """Whether spans of its begin were not kept; `begin_s` is then since when they were."""

    @property
    def what(self) -> str:
        """Its name in words."""
        name = f"iteration {self.number}" if self.counts else f"iteration {self.number}, outside the window,"
        return f"the end of {name} (older spans were not kept)" if self.cut else name


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadIterations:
    """Neighbouring iterations of one run, as read from its folder."""

    label: str
    """The system, and the number of GPUs."""
    record: RunRecord
    iterations: Sequence[Kept]
    """Those of the first rank, ascending."""
    shown: int
    """Which of them is shown first, and has its totals in the summary."""
    spans: Spans
    """All spans between the first begin and the last end of `iterations`, by rank, environment and time."""
    own_ends: Mapping[int, Sequence[tuple[int, float, float]]]
    """Number, begin and end of each rank's own iterations in that time."""
    in_step: bool
    """Whether ranks go through iterations together."""
    place: int
    """Place of the shown iteration in the summary."""

    @property
    def chosen(self) -> Kept:
        """The iteration that is shown first."""
        return self.iterations[self.shown]

    def num_spans(self) -> list[int]:
        """How many spans each of the iterations has."""
        return num_spans(self.iterations, self.spans.begin_s, self.spans.end_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadWork:
    """The iterations of a scenario and workload."""

    work: Work
    iterations: Sequence[ReadIterations]
    problems: Sequence[str]
    """Why chosen runs have no timeline."""


def read_iterations(summary: Summary, folders: Mapping[str, Path]) -> list[ReadWork]:
    """Reads the iterations that the timelines of a summary show.

    Args:
        summary: lists the runs.
        folders: run folders, by `sweep/id` or by run id; a folder of another sweep's run with that id is skipped.
    """
    records = {(run.sweep, run.id): run for run in summary.runs}
    made, place = [], 0
    for work in works(summary):
        found: list[ReadIterations] = []
        problems = []
        for name, record, folder in _chosen(work, records, folders):
            try:
                found.append(_read(name, record, folder, place))
                place += 1
            except ValueError as problem:
                problems.append(f"{name}: {problem}")
        if found or problems:
            made.append(ReadWork(work=work, iterations=found, problems=problems))
    return made


def with_iterations(summary: Summary, read: Sequence[ReadWork]) -> Summary:
    """The summary with the totals of the iterations that are shown first added."""
    iterations = [
        Iteration(
            sweep=each.record.sweep,
            run=each.record.id,
            label=each.label,
            what=each.chosen.what,
            begin_s=each.chosen.begin_s,
            seconds=each.chosen.end_s - each.chosen.begin_s,
            threads=[Thread(name=name, milliseconds=spent) for name, spent in _totals(each).items()],
        )
        for of_work in read
        for each in of_work.iterations
    ]
    return summary.model_copy(update={"iterations": iterations})


def num_spans(iterations: Sequence[Kept], begins_s: NDArray[np.float64], ends_s: NDArray[np.float64]) -> list[int]:
    """How many of S spans each iteration has, those that began before it or end after it included; times are [S]."""
    begins, ends = np.sort(begins_s), np.sort(ends_s)
    begun = np.searchsorted(begins, [each.end_s for each in iterations])
    over = np.searchsorted(ends, [each.begin_s for each in iterations], side="right")
    return [int(count) for count in begun - over]


def neighbours(counts: Sequence[int], shown: int, room: int) -> tuple[int, int]:
    """The first and the last of the iterations that fit: one in any case, then those before it, then those after it."""
    first = last = shown
    room -= counts[shown]
    while first > 0 and counts[first - 1] <= room:
        first -= 1
        room -= counts[first]
    while last + 1 < len(counts) and counts[last + 1] <= room:
        last += 1
        room -= counts[last]
    return first, last


def lane_name(rank: int, environment: int) -> str:
    """The name of a line."""
    of = {OWN: "", SECOND: ", second thread"}.get(environment, f", env {environment}")
    return f"rank {rank}{of}"


def _chosen(
    work: Work, records: Mapping[tuple[str, str], RunRecord], folders: Mapping[str, Path]
) -> Iterable[tuple[str, RunRecord, Path]]:
    """Names, records and folders of the runs that are shown."""
    of_sweep: dict[str, list[tuple[ScalingSeries, Placed, RunRecord, Path]]] = defaultdict(list)
    for series in work.series:
        for placed in (each for each in series.finished if each.cell.gpus <= MOST_GPUS):
            of_cell = [run for name in placed.cell.runs if (run := records.get((placed.cell.sweep, name)))]
            runs = sorted(of_cell, key=lambda run: run.cell.seed)
            first = next(
                ((run, folder) for run in runs if (folder := folder_of(run, folders, SPANS_FILE)) is not None), None
            )
            if first is not None:
                of_sweep[series.sweep].append((series, placed, *first))
    for found in of_sweep.values():
        most = max(placed.cell.gpus for _, placed, _, _ in found)
        for series, placed, record, folder in found:
            if placed.cell.gpus == most:
                yield f"{series.label} x{most}", record, folder


def folder_of(run: RunRecord, folders: Mapping[str, Path], file: str) -> Path | None:
    """The folder of a finished run, if it has a file and is of the same sweep; runs of two sweeps may share an id."""
    folder = folders.get(f"{run.sweep}/{run.id}") or folders.get(run.id)
    if run.status != "finished" or folder is None or not (folder / file).exists():
        return None
    try:
        sweep = read_json(folder / RUN_FILE, RECORD_BYTES)["sweep"]
    except (ValueError, KeyError, TypeError):
        return None
    return folder if sweep == run.sweep else None


def _read(label: str, run: RunRecord, folder: Path, place: int) -> ReadIterations:
    """Reads the iterations to show. Raises ValueError with the reason if there is none."""
    spans = _table(folder / SPANS_FILE, SPANS_COLUMNS, SPANS_ROWS)
    series = _table(folder / SERIES_FILE, SERIES_COLUMNS, SERIES_ROWS, {"in_step": "bool"})
    iterations = _kept(run, spans, series)
    shown = _shown(iterations)
    counts = num_spans(iterations, spans["begin_s"].to_numpy(), spans["end_s"].to_numpy())
    first, last = neighbours(counts, shown, MOST_SPANS)
    iterations = iterations[first : last + 1]
    begin_s, end_s = iterations[0].begin_s, iterations[-1].end_s
    inside = series[(series["end_s"] > begin_s) & (series["begin_s"] < end_s)].sort_values(["rank", "iteration"])
    own_ends: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    for rank, number, begin, end in zip(*(inside[name].tolist() for name in SERIES_COLUMNS), strict=True):
        own_ends[rank].append((number, begin, end))
    return ReadIterations(
        label=label,
        record=run,
        iterations=iterations,
        shown=shown - first,
        spans=_between(spans, begin_s, end_s),
        own_ends=own_ends,
        in_step="in_step" not in series or bool(series["in_step"].all()),
        place=place,
    )


def _kept(run: RunRecord, spans: pd.DataFrame, series: pd.DataFrame) -> list[Kept]:
    """The first rank's iterations whose spans were all kept, or the end of one; neighbours follow each other in time.

    Raises ValueError if there is none.
    """
    lanes = spans.groupby(["rank", "environment"])["begin_s"].agg(["size", "min"])
    of_env = min(SPAN_CAPACITY, env_span_capacity(1 + max(0, int(spans["environment"].max()))))
    is_env = lanes.index.get_level_values("environment") >= 0
    full = lanes[lanes["size"] >= is_env * of_env + ~is_env * SPAN_CAPACITY]
    kept_since = float(full["min"].max()) if len(full) else -np.inf
    window = run.figures.window
    found = []
    for row in series[series["rank"] == series["rank"].min()].sort_values("iteration").itertuples():
        begin_s, end_s = float(row.begin_s), float(row.end_s)
        if max(begin_s, kept_since) < end_s:
            counts = window is None or window.begin_s <= (begin_s + end_s) / 2 <= window.end_s
            cut = begin_s < kept_since
            found.append(
                Kept(number=int(row.iteration), begin_s=max(begin_s, kept_since), end_s=end_s, counts=counts, cut=cut)
            )
    if not found:
        raise ValueError(f"spans of no iteration were kept (of each thread the latest {SPAN_CAPACITY} are)")
    return found


def _shown(iterations: Sequence[Kept]) -> int:
    """The last whole one in the window, else the last cut one there; else the same of those outside the window."""
    return max(range(len(iterations)), key=lambda at: (iterations[at].counts, not iterations[at].cut, at))


def _between(spans: pd.DataFrame, begin_s: float, end_s: float) -> Spans:
    """The spans inside some iterations, by rank, environment and time; cut where these begin and end."""
    inside = spans[(spans["end_s"] > begin_s) & (spans["begin_s"] < end_s)]
    inside = inside.sort_values(["rank", "environment", "begin_s"], kind="stable")
    return Spans(
        rank=inside["rank"].to_numpy(),
        environment=inside["environment"].to_numpy(),
        begin_s=inside["begin_s"].to_numpy().clip(begin_s, end_s),
        end_s=inside["end_s"].to_numpy().clip(begin_s, end_s),
        kind=inside["kind"].to_numpy().astype(np.str_),
    )


def _totals(read: ReadIterations) -> dict[str, dict[str, float]]:
    """Milliseconds by row and kind; the environments of a rank are one row, their mean."""
    begin_s, end_s, spans = read.chosen.begin_s, read.chosen.end_s, read.spans
    spans = spans.where((spans.end_s > begin_s) & (spans.begin_s < end_s))
    spent = 1000 * (spans.end_s.clip(max=end_s) - spans.begin_s.clip(min=begin_s))
    num_envs = Counter(rank for rank, environment in lanes_of(spans) if environment >= 0)
    found: dict[str, dict[str, float]] = {}
    rows = zip(spans.rank.tolist(), spans.environment.tolist(), spans.kind.tolist(), spent.tolist(), strict=True)
    for rank, environment, kind, ms in sorted(rows, key=lambda row: _order(row[:2])):
        is_env = environment >= 0
        name = f"rank {rank}, its {num_envs[rank]} environments, mean" if is_env else lane_name(rank, environment)
        totals = found.setdefault(name, defaultdict(float))
        totals[kind] += ms / (num_envs[rank] if is_env else 1)
    return found


def lanes_of(spans: Spans) -> list[Lane]:
    """The lines that have spans, in the order of the page: by rank; within a rank its threads, then environments."""
    found = np.unique(np.stack([spans.rank, spans.environment]), axis=1)
    return sorted(map(tuple, found.T.tolist()), key=_order)


def _order(lane: Lane) -> tuple[int, bool, int]:
    rank, environment = lane
    return rank, environment >= 0, abs(environment)


def _table(
    path: Path, columns: Mapping[str, str], most_rows: int, optional: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Reads a table. Raises ValueError for a damaged file."""
    try:
        table = read_columns(path, columns, optional, most_rows=most_rows)
        check_numbers(table)
    except ValueError as problem:
        raise ValueError(f"{path.name} cannot be read ({problem})") from None
    frame: pd.DataFrame = table.to_pandas()
    return frame
