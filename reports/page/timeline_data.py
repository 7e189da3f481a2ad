"""What the page's script draws of the iterations of worker timelines: all their spans and waits, encoded briefly.

Times are whole ticks since the begin of the first iteration. A tick is a power of ten of a second, of which the longest
iteration has at most `MOST_TICKS`, so that a hundred runs fit into a page. A line has a letter for the kind of each
span, and the gap before it and its length; waits have the lines and the ticks where they end and begin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlbench.harness.timelines.chain import Chain, Wait
from rlbench.harness.timelines.timelines import Spans
from rlbench.reports.page.charts.chart import Facets, run_facets
from rlbench.reports.page.charts.style import in_order, span_style
from rlbench.reports.page.charts.works import Work
from rlbench.reports.page.timeline import MOST_SPANS, Kept, Lane, ReadIterations, ReadWork, lanes_of, neighbours

MOST_TICKS = 200_000
SPAN_BYTES = 5
"""Size of a span in a page, where it is packed; 4.2 were seen."""
FIRST_LETTER = "A"
MOST_KINDS = 60
"""Further kinds of spans, of which only a strange file has so many, are `other`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTimeline:
    """Neighbouring iterations of one run."""

    label: str
    """The system, and the number of GPUs."""
    run: str
    """Id of the run."""
    facets: Facets
    """What the page's filters know the run by."""
    note: str
    """Which iteration is shown first, and its length."""
    left_out: str
    """What is not drawn."""
    lanes: Sequence[Lane]
    """The lines, in the order of the page."""
    iterations: Sequence[Kept]
    shown: int
    """Which of them is shown first."""
    kinds: Sequence[str]
    """All kinds of spans."""
    data: Mapping[str, Any]
    """Ticks, by the names that the script uses."""
    place: int
    """Place of the totals of the shown iteration in the summary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineChoice:
    """The timelines of a scenario and workload; the page shows one at a time."""

    work: Work
    timelines: Sequence[RunTimeline]
    problems: Sequence[str]
    """Why chosen runs have no timeline."""


def timelines(read: Sequence[ReadWork], most_spans: int = MOST_SPANS) -> list[TimelineChoice]:
    """The timelines of these iterations, with about `most_spans` spans in total: spans of ranks are never left out."""
    rooms = _rooms([each for of_work in read for each in of_work.iterations], most_spans)
    return [
        TimelineChoice(
            work=of_work.work,
            timelines=[_timeline(each, rooms[each.place]) for each in of_work.iterations],
            problems=of_work.problems,
        )
        for of_work in read
    ]


def _rooms(read: Sequence[ReadIterations], most_spans: int) -> dict[int, int]:
    """The room of each run, by its place: an equal share, and of what runs with fewer spans do not need."""
    rooms = {}
    for at, each in enumerate(sorted(read, key=lambda each: len(each.spans.begin_s))):
        rooms[each.place] = most_spans // (len(read) - at)
        most_spans -= min(rooms[each.place], len(each.spans.begin_s))
    return rooms


def page_data(choice: TimelineChoice) -> dict[str, Any]:
    """The data of a work that the page's script draws, under short names."""
    runs = [
        {
            "label": each.label,
            "facets": each.facets,
            "note": each.left_out,
            "lanes": each.lanes,
            "kinds": each.kinds,
            "colours": [span_style(kind)[0] for kind in each.kinds],
            "shown": each.shown,
            **each.data,
        }
        for each in choice.timelines
    ]
    return {"runs": runs}


def _timeline(read: ReadIterations, room: int) -> RunTimeline:
    first, last = neighbours(read.num_spans(), read.shown, room)
    iterations = read.iterations[first : last + 1]
    begin_s, end_s = iterations[0].begin_s, iterations[-1].end_s
    spans = read.spans.where((read.spans.end_s > begin_s) & (read.spans.begin_s < end_s))
    ticks = _Ticks(begin_s, end_s, max(each.end_s - each.begin_s for each in iterations))
    all_lanes = lanes_of(spans)
    lanes = _fitting(spans, all_lanes, room)
    kinds = in_order(set(spans.kind.tolist()))
    if len(kinds) > MOST_KINDS:
        kinds = in_order({*kinds[: MOST_KINDS - 1], "other"})
    chain = Chain(read.spans, in_step=read.in_step)
    data = {
        "tick": ticks.tick_s,
        "begin": begin_s,
        "end": ticks.of(end_s),
        "iterations": [
            [each.number, ticks.of(each.begin_s), ticks.of(each.end_s), int(each.counts), int(each.cut)]
            for each in iterations
        ],
        "own": [
            [rank, *([number, ticks.of(begin), ticks.of(end)] for number, begin, end in own)]
            for rank, own in read.own_ends.items()
        ],
        "spans": _coded_spans(spans, lanes, kinds, ticks),
        "waits": _coded_waits(chain.waits(begin_s, end_s), lanes, ticks),
        "path": _coded_waits(chain.path(begin_s, end_s), lanes, ticks),
    }
    shown = read.chosen
    note = f"{shown.what} of run {read.record.id}, {1000 * (shown.end_s - shown.begin_s):,.1f} ms"
    note += f", from {shown.begin_s:,.3f} s on"
    num_left_out = len(all_lanes) - len(lanes)
    left_out = f"{num_left_out} {'environment does' if num_left_out == 1 else 'environments do'} not fit into it."
    return RunTimeline(
        label=read.label,
        run=read.record.id,
        facets=run_facets(read.record),
        note=note,
        left_out=left_out if num_left_out else "",
        lanes=lanes,
        iterations=iterations,
        shown=read.shown - first,
        kinds=kinds,
        data=data,
        place=read.place,
    )


class _Ticks:
    """Times as whole ticks."""

    def __init__(self, begin_s: float, end_s: float, longest_s: float) -> None:
        digits = max(0, math.floor(-math.log10(longest_s / MOST_TICKS)))
        self._begin_s, self._end_s, self.tick_s = begin_s, end_s, 10.0**-digits

    def of(self, moment_s: float) -> int:
        """A moment, or the first or the last one."""
        return round((min(max(moment_s, self._begin_s), self._end_s) - self._begin_s) / self.tick_s)

    def of_all(self, moments_s: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The same of many, [S]."""
        inside = moments_s.clip(self._begin_s, self._end_s) - self._begin_s
        return np.rint(inside / self.tick_s).astype(np.int64)


def _fitting(spans: Spans, lanes: Sequence[Lane], room: int) -> list[Lane]:
    """The lines that fit, in the order of the page: all threads of ranks, then one environment of each rank in turn."""
    numbers, counts = np.unique(np.stack([spans.rank, spans.environment]), axis=1, return_counts=True)
    num_spans = dict(zip(map(tuple, numbers.T.tolist()), counts.tolist(), strict=True))
    kept = set()
    for rank, environment in sorted(lanes, key=lambda lane: (lane[1] >= 0, abs(lane[1]), lane[0])):
        room -= num_spans[rank, environment]
        if environment >= 0 and room < 0:
            break
        kept.add((rank, environment))
    return [lane for lane in lanes if lane in kept]


def _coded_spans(spans: Spans, lanes: Sequence[Lane], kinds: Sequence[str], ticks: _Ticks) -> list[Any]:
    """For each line the letters of its spans' kinds, then the gap before and the length of each.

    Spans that round to nothing are left out; what overlaps the span before it, which none of ours does, is cut.
    """
    letter_of = {kind: chr(ord(FIRST_LETTER) + number) for number, kind in enumerate(kinds)}
    begins, ends = ticks.of_all(spans.begin_s), ticks.of_all(spans.end_s)
    numbers = spans.lanes
    found: dict[Lane, Any] = {}
    for own in np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1):
        if len(own):
            last = np.concatenate([[0], np.maximum.accumulate(ends[own])[:-1]])
            begin, end = np.maximum(begins[own], last), ends[own]
            lasts = end > begin
            begin, end, of = begin[lasts], end[lasts], own[lasts]
            letters = "".join(letter_of.get(kind) or letter_of["other"] for kind in spans.kind[of].tolist())
            steps = np.stack([begin - np.concatenate([[0], end[:-1]]), end - begin], axis=1)
            found[int(spans.rank[own[0]]), int(spans.environment[own[0]])] = [letters, steps.ravel().tolist()]
    return [found[lane] for lane in lanes]


def _coded_waits(waits: Iterable[Wait], lanes: Sequence[Lane], ticks: _Ticks) -> list[int]:
    """Four numbers for each wait between drawn lines: line, tick, the other line, ticks since that was done."""
    row_of = {lane: row for row, lane in enumerate(lanes)}
    coded = []
    for each in waits:
        row, other = row_of.get((each.rank, each.environment)), row_of.get((each.for_rank, each.for_environment))
        if row is not None and other is not None:
            at = ticks.of(each.until_s)
            coded.append((at, row, other, at - ticks.of(each.done_s)))
    return [number for at, row, other, since in sorted(coded) for number in (row, at, other, since)]
