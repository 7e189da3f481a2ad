"""The timeline of one run as a Chrome trace, which the Perfetto viewer opens (https://ui.perfetto.dev).

A rank is a process of the trace. Its threads are the rank's timeline, its second timeline and its environments, in this
order. The spans are those of `spans.parquet`: the latest ones of each thread, on the run's clock. The trace begins with
the first of them, because the viewer takes no negative times; `otherData` has that time. Times are whole nanoseconds,
written in microseconds as the format requires, so that a span that begins when another ends does not overlap it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlbench.results.reading.tables import SPANS_COLUMNS, SPANS_FILE, SPANS_ROWS, check_numbers, read_columns
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.findings import label

OWN, SECOND = -1, -2
"""Values of `environment` for spans of the rank's threads."""
NS = 1e9
Span = tuple[int, int, float, float, str]
"""A row, in the order of `SPANS_COLUMNS`."""


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
        """Name of the track in the viewer."""
        own = {OWN: f"rank {self.rank}", SECOND: f"rank {self.rank}, second thread"}
        return own.get(self.environment, f"environment {self.environment}")


def write_trace(folder: Path, record: RunRecord) -> Iterator[str]:
    """The trace of a run in pieces of text, to be written one after another.

    Args:
        folder: the run folder.
        record: the run's record.

    Raises ValueError for a run without spans, and for a damaged file.
    """
    return _pieces(_read_spans(folder, record), record)


def _pieces(spans: Sequence[Span], record: RunRecord) -> Iterator[str]:
    tracks = sorted(Track.of(*track) for track in {(rank, environment) for rank, environment, *_ in spans})
    threads, processes = _numbered(tracks)
    zero_s = min(begin_s for _, _, begin_s, _, _ in spans)
    about = {
        "run": label(record),
        "id": record.id,
        "sweep": record.sweep,
        "begin_s": zero_s,
        "clock": "of the profile" if record.figures.emulated else "of the wall",
    }
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [\n'
    yield ",\n".join(json.dumps(event) for event in _names(threads, processes))
    places = {(track.rank, track.environment): (processes[track.rank], thread) for track, thread in threads.items()}
    for rank, environment, begin_s, end_s, kind in spans:
        begin, end = round((begin_s - zero_s) * NS), round((end_s - zero_s) * NS)
        if end > begin:
            process, thread = places[rank, environment]
            yield (
                f',\n{{"ph": "X", "pid": {process}, "tid": {thread}, '
                f'"ts": {begin / 1e3:.3f}, "dur": {(end - begin) / 1e3:.3f}, "name": {json.dumps(kind)}}}'
            )
    yield "\n]}\n"


def _numbered(tracks: Sequence[Track]) -> tuple[dict[Track, int], dict[int, int]]:
    """Thread ids by track, and process ids by rank: a process has the id of its first thread, as on Linux."""
    threads = {track: number for number, track in enumerate(tracks, start=1)}  # thread 0 would be the idle thread
    processes: dict[int, int] = {}
    for track, thread in threads.items():
        processes.setdefault(track.rank, thread)
    return threads, processes


def _names(threads: Mapping[Track, int], processes: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Events that give processes and threads their names and their order in the viewer."""
    for rank, process in processes.items():
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": f"rank {rank}"}}
        yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": rank}}
    for track, thread in threads.items():
        place = {"ph": "M", "pid": processes[track.rank], "tid": thread}
        yield {**place, "name": "thread_name", "args": {"name": track.name}}
        yield {**place, "name": "thread_sort_index", "args": {"sort_index": track.place}}


def _read_spans(folder: Path, record: RunRecord) -> list[Span]:
    path = folder / SPANS_FILE
    spans = _rows(path) if path.exists() else []
    if not spans:
        why = "a model made the run up" if record.figures.predicted else f"the run is {record.status}"
        raise ValueError(f"{folder}: has no {SPANS_FILE}, {why}; name the folder of a run that was measured")
    return spans


def _rows(path: Path) -> list[Span]:
    try:
        table = read_columns(path, SPANS_COLUMNS, most_rows=SPANS_ROWS)
        check_numbers(table)
    except ValueError as problem:
        raise ValueError(f"{path}: cannot be read ({problem}); name another run") from None
    columns = table.to_pydict()
    return list(zip(*(columns[name] for name in SPANS_COLUMNS), strict=True))
