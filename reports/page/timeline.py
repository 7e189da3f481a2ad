"""The worker timeline: which thread simulated, inferred, learned or waited when, in one iteration of a run.

For each sweep, scenario and workload it shows the most GPUs up to `MOST_GPUS`, the first seed of each system, the first
`NUM_RANKS` ranks, and the last iteration in the window whose spans were all kept (`docs/run-folder.md`). Times are
rounded to 0.1 ms and encoded briefly, so that a hundred runs fit into a page.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
MOST_GPUS = 8
NUM_RANKS = 2
KEPT_SPANS = 4096
"""The file keeps this many spans of each thread, the latest; where it has fewer, none were dropped. It keeps as many of
each environment, up to `KEPT_OF` environments of a rank, and fewer where there are more."""
KEPT_OF = 64
TICKS_PER_S = 10_000
"""The page counts time in ticks of 0.1 ms."""
MOST_SPANS = 150_000
"""Maximum number of spans in all timelines of a page; environments that do not fit are left out, the last first."""
SPAN_BYTES = 7
"""Maximum size of a span in a page."""
RANK, SECOND_THREAD = -1, -2
"""Values of `environment` for spans of the rank's threads."""


Lane = tuple[int, int]
"""Rank and environment; `RANK` or `SECOND_THREAD` instead of an environment for a thread of the rank."""
Span = tuple[str, float, float]
"""Kind, begin and end in seconds."""
Ends = list[tuple[int, int]]
"""Begin and end of spans, in ticks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IterationTimeline:
    """One iteration of one run."""

    label: str
    """The system."""
    run: str
    """Id of the run."""
    note: str
    """Which iteration it is, and what is left out."""
    rows: Sequence[str]
    """Name of each line: a rank's thread or an environment."""
    num_ticks: int
    """Duration of the iteration."""
    spans: Mapping[str, Sequence[Sequence[int]]]
    """By kind, a list for each row with such spans: the row's number, then gap and length of each span, in ticks."""
    place: int
    """Place of the iteration's totals in the summary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineChoice:
    """The timelines of a scenario and workload; the page shows one at a time."""

    work: Work
    timelines: Sequence[IterationTimeline]
    problems: Sequence[str]
    """Why chosen runs have no timeline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadIteration:
    """One iteration of one run, as read from its folder."""

    label: str
    record: RunRecord
    what: str
    begin_s: float
    end_s: float
    inside: Mapping[Lane, Sequence[Span]]
    """Spans of each line, in seconds since the begin of the iteration."""
    place: int
    """Place of this iteration in the summary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadWork:
    """The iterations of a scenario and workload."""

    work: Work
    iterations: Sequence[ReadIteration]
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
        found: list[ReadIteration] = []
        problems = []
        for name, record, folder in _chosen(work, records, folders):
            try:
                found.append(_read_iteration(name, record, folder, place))
                place += 1
            except ValueError as problem:
                problems.append(f"{name}: {problem}")
        if found or problems:
            made.append(ReadWork(work=work, iterations=found, problems=problems))
    return made


def with_iterations(summary: Summary, read: Sequence[ReadWork]) -> Summary:
    """The summary with the totals of these iterations added."""
    iterations = [
        Iteration(
            sweep=each.record.sweep,
            run=each.record.id,
            label=each.label,
            what=each.what,
            begin_s=each.begin_s,
            seconds=each.end_s - each.begin_s,
            threads=[Thread(name=name, milliseconds=spent) for name, spent in _totals(each.inside).items()],
        )
        for of_work in read
        for each in of_work.iterations
    ]
    return summary.model_copy(update={"iterations": iterations})


def timelines(read: Sequence[ReadWork], most_spans: int = MOST_SPANS) -> list[TimelineChoice]:
    """The timelines of these iterations, with about `most_spans` spans in total: spans of ranks are never left out."""
    room = most_spans // max(1, sum(len(of_work.iterations) for of_work in read))
    return [
        TimelineChoice(
            work=of_work.work,
            timelines=[_timeline(each, room) for each in of_work.iterations],
            problems=of_work.problems,
        )
        for of_work in read
    ]


def _chosen(
    work: Work, records: Mapping[tuple[str, str], RunRecord], folders: Mapping[str, Path]
) -> Iterable[tuple[str, RunRecord, Path]]:
    """Names, records and folders of the runs that are shown."""
    of_sweep: dict[str, list[tuple[ScalingSeries, Placed, RunRecord, Path]]] = defaultdict(list)
    for series in work.series:
        for placed in (each for each in series.finished if each.cell.gpus <= MOST_GPUS):
            of_cell = [run for name in placed.cell.runs if (run := records.get((placed.cell.sweep, name)))]
            runs = sorted(of_cell, key=lambda run: run.cell.seed)
            first = next(((run, folder) for run in runs if (folder := _folder(run, folders)) is not None), None)
            if first is not None:
                of_sweep[series.sweep].append((series, placed, *first))
    for found in of_sweep.values():
        most = max(placed.cell.gpus for _, placed, _, _ in found)
        for series, placed, record, folder in found:
            if placed.cell.gpus == most:
                yield f"{series.label} x{most}", record, folder


def _folder(run: RunRecord, folders: Mapping[str, Path]) -> Path | None:
    """The folder of a finished run, if it has spans and is of the same sweep; runs of two sweeps may share an id."""
    folder = folders.get(f"{run.sweep}/{run.id}") or folders.get(run.id)
    if run.status != "finished" or folder is None or not (folder / SPANS_FILE).exists():
        return None
    try:
        sweep = read_json(folder / RUN_FILE, RECORD_BYTES)["sweep"]
    except (ValueError, KeyError, TypeError):
        return None
    return folder if sweep == run.sweep else None


def _read_iteration(label: str, run: RunRecord, folder: Path, place: int) -> ReadIteration:
    """Reads the iteration to show. Raises ValueError with the reason if there is none."""
    spans = _read(folder / SPANS_FILE, SPANS_COLUMNS, SPANS_ROWS)
    series = _read(folder / SERIES_FILE, SERIES_COLUMNS, SERIES_ROWS)
    what, begin_s, end_s = _iteration(run, spans, series)
    return ReadIteration(
        label=label,
        record=run,
        what=what,
        begin_s=begin_s,
        end_s=end_s,
        inside=_cut(spans, begin_s, end_s),
        place=place,
    )


def _timeline(read: ReadIteration, room: int) -> IterationTimeline:
    """A timeline of at most `room` spans, or of the ranks' spans alone if these are more."""
    lanes = {lane: _lane(of_lane) for lane, of_lane in read.inside.items()}
    drawn = _fitting(lanes, room)
    seconds = read.end_s - read.begin_s
    note = f"{read.what} of run {read.record.id}, {1000 * seconds:,.1f} ms, from {read.begin_s:,.3f} s on"
    if left_out := len(lanes) - len(drawn):
        note += f"; {left_out} {'environment is' if left_out == 1 else 'environments are'} left out"
    coded: dict[str, list[list[int]]] = defaultdict(list)
    for row, lane in enumerate(drawn):
        for kind, of_kind in lanes[lane].items():
            coded[kind].append([row, *_gaps_and_lengths(of_kind)])
    return IterationTimeline(
        label=read.label,
        run=read.record.id,
        note=note,
        rows=[_name(*lane) for lane in drawn],
        num_ticks=round(seconds * TICKS_PER_S),
        spans=coded,
        place=read.place,
    )


def _iteration(run: RunRecord, spans: pd.DataFrame, series: pd.DataFrame) -> tuple[str, float, float]:
    """The first rank's last iteration in the window whose spans were all kept: its name, begin and end.

    If there is none, the end of an iteration in the window, from where spans were kept. If spans were kept only outside
    the window, as can happen when ranks do not wait for each other, an iteration there, chosen in the same way.
    """
    lanes = spans.groupby(["rank", "environment"])["begin_s"].agg(["size", "min"])
    kept = KEPT_SPANS * KEPT_OF // max(KEPT_OF, 1 + spans["environment"].max())
    is_env = lanes.index.get_level_values("environment") >= 0
    kept_since = lanes[lanes["size"] >= is_env * kept + ~is_env * KEPT_SPANS]["min"].max()  # NaN if none were dropped
    rows = series[series["rank"] == series["rank"].min()].sort_values("iteration", ascending=False)
    found: dict[tuple[bool, bool], tuple[str, float, float]] = {}
    for row in rows.itertuples():
        number, begin_s, end_s = int(row.iteration), float(row.begin_s), float(row.end_s)
        window, middle_s = run.figures.window, (begin_s + end_s) / 2
        outside = window is not None and not window.begin_s <= middle_s <= window.end_s
        name = f"iteration {number}, outside the window," if outside else f"iteration {number}"
        if not begin_s < kept_since and begin_s < end_s:
            found.setdefault((outside, False), (name, begin_s, end_s))
        elif begin_s < kept_since < end_s:
            cut = f"the end of {name} (older spans were not kept)"
            found.setdefault((outside, True), (cut, float(kept_since), end_s))
    if not found:
        raise ValueError(f"spans of no iteration were kept (of each thread the latest {KEPT_SPANS} are)")
    return found[min(found)]


def _cut(spans: pd.DataFrame, begin_s: float, end_s: float) -> dict[Lane, list[Span]]:
    """The spans of each line inside an iteration, cut at its ends, in seconds since its begin."""
    found: dict[Lane, list[Span]] = defaultdict(list)
    inside = spans[(spans["end_s"] > begin_s) & (spans["begin_s"] < end_s)]
    for rank, environment, begin, end, kind in zip(*(inside[name].tolist() for name in SPANS_COLUMNS), strict=True):
        found[rank, environment].append((kind, max(begin, begin_s) - begin_s, min(end, end_s) - begin_s))
    return found


def _lane(spans: Sequence[Span]) -> dict[str, Ends]:
    """The spans of a line by kind, in ticks; spans that round to nothing are left out, spans that touch are merged."""
    found: dict[str, Ends] = defaultdict(list)
    for kind, begin_s, end_s in sorted(spans, key=lambda span: span[1]):
        begin, end = round(begin_s * TICKS_PER_S), round(end_s * TICKS_PER_S)
        ends = found[kind]
        if ends and ends[-1][1] == begin < end:
            ends[-1] = (ends[-1][0], end)
        elif begin < end:
            ends.append((begin, end))
    return {kind: ends for kind, ends in found.items() if ends}


def _fitting(lanes: Mapping[Lane, Mapping[str, Ends]], room: int) -> list[Lane]:
    """The lines that fit, in the order of the page: all threads of ranks, then one environment of each rank in turn."""
    kept: list[Lane] = []
    for rank, environment in sorted(lanes, key=lambda lane: (lane[1] >= 0, abs(lane[1]), lane[0])):
        room -= sum(len(ends) for ends in lanes[rank, environment].values())
        if environment >= 0 and room < 0:
            break
        kept.append((rank, environment))
    return sorted(kept, key=_place)


def _place(lane: Lane) -> tuple[int, bool, int]:
    """Sort key of a line: by rank; within a rank its threads, then its environments."""
    return lane[0], lane[1] >= 0, abs(lane[1])


def _gaps_and_lengths(ends: Ends) -> Iterable[int]:
    last = 0
    for begin, end in ends:
        yield from (begin - last, end - begin)
        last = end


def _name(rank: int, environment: int) -> str:
    of = {RANK: "", SECOND_THREAD: ", second thread"}.get(environment, f", env {environment}")
    return f"rank {rank}{of}"


def _totals(lanes: Mapping[Lane, Sequence[Span]]) -> dict[str, dict[str, float]]:
    """Milliseconds by row and kind; the environments of a rank are one row, their mean."""
    num_envs = Counter(rank for rank, environment in lanes if environment >= 0)
    found: dict[str, dict[str, float]] = {}
    for rank, environment in sorted(lanes, key=_place):
        is_env = environment >= 0
        name = f"rank {rank}, its {num_envs[rank]} environments, mean" if is_env else _name(rank, environment)
        totals = found.setdefault(name, defaultdict(float))
        for kind, begin_s, end_s in lanes[rank, environment]:
            totals[kind] += 1000 * (end_s - begin_s) / (num_envs[rank] if is_env else 1)
    return found


def _read(path: Path, columns: Mapping[str, str], most_rows: int) -> pd.DataFrame:
    """Reads the rows of the first `NUM_RANKS` ranks. Raises ValueError for a damaged file."""
    from pyarrow import compute as pc

    try:
        table = read_columns(path, columns, most_rows=most_rows)
        check_numbers(table)
    except ValueError as problem:
        raise ValueError(f"{path.name} cannot be read ({problem})") from None
    frame: pd.DataFrame = table.filter(pc.less(table["rank"], NUM_RANKS)).to_pandas()
    return frame


def page_data(choice: TimelineChoice) -> dict[str, Any]:
    """The data that the page's script draws, under short names."""
    return {
        "runs": [
            {"label": each.label, "note": each.note, "rows": each.rows, "ticks": each.num_ticks, "spans": each.spans}
            for each in choice.timelines
        ]
    }
