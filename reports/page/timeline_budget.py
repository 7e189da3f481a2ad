"""Which works have timelines in a page: as many as there is room for, with as many spans as fit.

What does not fit is left out in this order: iterations beside the one that is shown first, environments, the timelines
of the last works. The page says which works have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rlbench.reports.page.embedding import packed_json
from rlbench.reports.page.timeline import MOST_SPANS, ReadWork
from rlbench.reports.page.timeline_data import SPAN_BYTES, TimelineChoice, page_data, timelines
from rlbench.reports.page.timeline_section import TOTALS_ROWS
from rlbench.results.summary.document import Summary

FIGURE_BYTES, RUN_BYTES, ENTRY_BYTES = 4_500, 700, 110
"""HTML of a figure, of the table of a run in it, and of an entry in that; 3,800, 500 and 90 were seen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """The timelines that a page has."""

    choices: Sequence[TimelineChoice]
    data: Markup
    """What the page's script draws of them."""
    left_out: Sequence[str]
    """Names of works that there is no room for."""


def fitting(read: Sequence[ReadWork], summary: Summary, room_bytes: int) -> Fitted:
    """The timelines of these works, as far as their data and HTML have room.

    Args:
        read: the works.
        summary: has the totals of their iterations.
        room_bytes: what the other parts of the page leave.
    """
    html = [_html_bytes(each, summary) for each in read]
    room = room_bytes - sum(html)
    if room > 0 and len((made := _made(read, room // SPAN_BYTES)).data) <= room:
        return made
    kept, room = 0, room_bytes
    for each, of_html in zip(read, html, strict=True):
        room -= of_html + len(_made([each], 0).data)
        if room < 0:
            break
        kept += 1
    room = room_bytes - sum(html[:kept])
    left_out = [each.work.name for each in read[kept:]]
    made = _made(read[:kept], room // (2 * SPAN_BYTES), left_out)
    return made if len(made.data) <= room else _made(read[:kept], 0, left_out)


def _made(read: Sequence[ReadWork], most_spans: int, left_out: Sequence[str] = ()) -> Fitted:
    choices = timelines(read, min(most_spans, MOST_SPANS))
    data = packed_json({f"timeline-{number}": page_data(choice) for number, choice in enumerate(choices)})
    return Fitted(choices=choices, data=data, left_out=left_out)


def _html_bytes(read: ReadWork, summary: Summary) -> int:
    """About how long the HTML of a work is."""
    tables = [summary.iterations[each.place].threads[:TOTALS_ROWS] for each in read.iterations]
    entries = sum(len(table) * (1 + len({kind for each in table for kind in each.milliseconds})) for table in tables)
    return FIGURE_BYTES + RUN_BYTES * len(tables) + ENTRY_BYTES * entries
