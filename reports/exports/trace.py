"""The timelines of runs as a Chrome trace, which the Perfetto viewer opens (https://ui.perfetto.dev).

Of one run, a rank is a process of the trace; of several, a run is one. A rank's threads are its timeline, its second
timeline and its environments, in this order. The spans are those of `spans.parquet`: the latest ones of each thread, on
the run's clock. Each run begins at 0 with the first of them, because the viewer takes no negative times; `otherData`
has that time. Times are whole nanoseconds, written in microseconds as the format requires, so that a span that begins
when another ends does not overlap it. The spans of one run at a time are in memory, packed as in their file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.results.reading.tables import SPANS_COLUMNS, SPANS_FILE, SPANS_ROWS, check_numbers, read_columns
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.findings import label

if TYPE_CHECKING:
    import pyarrow as pa

OWN, SECOND = -1, -2
"""Values of `environment` for spans of the rank's threads."""
NS = 1e9
PIECE_ROWS = 65_536
"""So many rows are unpacked at a time."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Track:
    """A thread of the trace."""

    rank: int
    place: int
    """Order within the rank: its timeline, its second timeline, then its environments."""
    environment: int

    @classmethod
    def of(cls, rank: int, environment: int) -> Track:
        """The track of a row of `spans.parquet`."""
        return cls(rank=rank, place=-environment - 1 if environment < 0 else environment + 2, environment=environment)

    @property
    def name(self) -> str:
        """Name of the track in the viewer, in the process of its rank."""
        own = {OWN: f"rank {self.rank}", SECOND: f"rank {self.rank}, second thread"}
        return own.get(self.environment, f"environment {self.environment}")

    @property
    def full_name(self) -> str:
        """The same in the process of a run."""
        return self.name if self.environment < 0 else f"rank {self.rank}, {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedRun:
    """A run of the trace."""

    path: Path
    """Its file of spans."""
    record: RunRecord
    begin_s: float
    """When its first span begins."""
    processes: Sequence[tuple[int, str, int]]
    """Number, name and order of each process."""
    threads: Sequence[tuple[int, int, Track, str]]
    """Number of the process, own number, track and name of each thread, in their order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """What is to be written."""

    runs: Sequence[TracedRun]
    problems: Sequence[str]
    """Why further runs are not in it."""

    def pieces(self) -> Iterator[str]:
        """Its text, to be written one piece after another. Raises ValueError for a file that was changed meanwhile."""
        about = [_about(run) for run in self.runs]
        shown: Any = about[0] if len(about) == 1 else {"runs": about}
        yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(shown)}, "traceEvents": [\n'
        yield ",\n".join(json.dumps(event) for run in self.runs for event in _names(run))
        for run in self.runs:
            yield from _spans(run)
        yield "\n]}\n"


def read_trace(runs: Sequence[tuple[Path, RunRecord]]) -> Trace:
    """Looks into the spans of some runs, each given by its folder and its record.

    Raises ValueError if none of them has spans that can be read.
    """
    labels = Counter(label(record) for _, record in runs)
    traced: list[TracedRun] = []
    problems = []
    for order, (folder, record) in enumerate(runs):
        name = label(record)
        if labels[name] > 1:
            name += f" ({record.sweep}/{record.id})"
        first = 1 + sum(len(each.threads) for each in traced)  # thread 0 would be the idle thread
        try:
            traced.append(_traced(folder, record, first, name if len(runs) > 1 else None, order))
        except ValueError as problem:
            problems.append(str(problem))
    if not traced:
        raise ValueError(problems[0])
    return Trace(runs=traced, problems=problems)


def _traced(folder: Path, record: RunRecord, first: int, name: str | None, order: int) -> TracedRun:
    """Numbers the threads of a run from `first` on; a process has the number of its first thread, as on Linux.

    Its ranks are processes, or with a `name` the run itself is one.
    """
    table = _read_spans(folder, record)
    ranks, environments = (np.from_dlpack(table[key].combine_chunks()) for key in ("rank", "environment"))
    lanes = np.unique(np.stack([ranks, environments]), axis=1).T.tolist()
    tracks = sorted(Track.of(rank, environment) for rank, environment in lanes)
    numbered = list(enumerate(tracks, start=first))
    if name is None:
        process_of = {track.rank: number for number, track in reversed(numbered)}
        processes = [(process_of[rank], f"rank {rank}", rank) for rank in sorted(process_of)]
    else:
        process_of = {track.rank: first for track in tracks}
        processes = [(first, name, order)]
    return TracedRun(
        path=folder / SPANS_FILE,
        record=record,
        begin_s=float(np.from_dlpack(table["begin_s"].combine_chunks()).min()),
        processes=processes,
        threads=[
            (process_of[track.rank], number, track, track.name if name is None else track.full_name)
            for number, track in numbered
        ],
    )


def _about(run: TracedRun) -> dict[str, Any]:
    return {
        "run": label(run.record),
        "id": run.record.id,
        "sweep": run.record.sweep,
        "begin_s": run.begin_s,
        "clock": "of the profile" if run.record.figures.emulated else "of the wall",
    }


def _names(run: TracedRun) -> Iterator[dict[str, Any]]:
    """Events that give processes and threads their names and their order in the viewer."""
    for process, name, order in run.processes:
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": order}}
    for order, (process, thread, _, name) in enumerate(run.threads):
        place = {"ph": "M", "pid": process, "tid": thread}
        yield {**place, "name": "thread_name", "args": {"name": name}}
        yield {**place, "name": "thread_sort_index", "args": {"sort_index": order}}


def _spans(run: TracedRun) -> Iterator[str]:
    places = {(track.rank, track.environment): (process, thread) for process, thread, track, _ in run.threads}
    for batch in _table(run.path).to_batches(max_chunksize=PIECE_ROWS):
        columns = batch.to_pydict()
        for rank, environment, begin_s, end_s, kind in zip(*(columns[name] for name in SPANS_COLUMNS), strict=True):
            begin, end = round((begin_s - run.begin_s) * NS), round((end_s - run.begin_s) * NS)
            if end > begin:
                process, thread = places[rank, environment]
                yield (
                    f',\n{{"ph": "X", "pid": {process}, "tid": {thread}, '
                    f'"ts": {begin / 1e3:.3f}, "dur": {(end - begin) / 1e3:.3f}, "name": {json.dumps(kind)}}}'
                )


def _read_spans(folder: Path, record: RunRecord) -> pa.Table:
    path = folder / SPANS_FILE
    table = _table(path) if path.exists() else ()
    if not len(table):
        why = "a model made the run up" if record.figures.predicted else f"the run is {record.status}"
        raise ValueError(f"{folder}: has no {SPANS_FILE}, {why}; name the folder of a run that was measured")
    return table


def _table(path: Path) -> pa.Table:
    try:
        table = read_columns(path, SPANS_COLUMNS, most_rows=SPANS_ROWS)
        check_numbers(table)
    except ValueError as problem:
        raise ValueError(f"{path}: cannot be read ({problem}); name another run") from None
    return table
