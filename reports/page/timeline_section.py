"""What the page's template needs for the worker timelines of a work, but for what its script draws."""

from __future__ import annotations

from typing import Any

from rlbench.reports.page.charts.chart import PageTable, datum, words
from rlbench.reports.page.charts.style import in_order
from rlbench.reports.page.timeline_data import RunTimeline, TimelineChoice
from rlbench.results.summary.document import Iteration, Summary

TOTALS_ROWS = 24
"""Maximum number of rows in the table of an iteration's totals."""


def timeline_section(number: int, choice: TimelineChoice, summary: Summary) -> dict[str, Any]:
    """The data that the template needs for the timelines of a work."""
    return {
        "id": f"timeline-{number}",
        "facets": choice.work.facets,
        "title": choice.work.titled("One iteration, worker by worker"),
        "labels": [each.label for each in choice.timelines],
        "problems": choice.problems,
        "totals": [(each.facets, _totals(each, summary.iterations[each.place])) for each in choice.timelines],
    }


def _totals(timeline: RunTimeline, iteration: Iteration) -> PageTable:
    kinds = in_order({kind for thread in iteration.threads for kind in thread.milliseconds})
    rows = []
    for at, thread in enumerate(iteration.threads[:TOTALS_ROWS]):
        path = f"iterations.{timeline.place}.threads.{at}.milliseconds"
        known = thread.milliseconds
        rows.append(
            [
                words(thread.name),
                *(datum(f"{path}.{kind}", known[kind]) if kind in known else words("-") for kind in kinds),
            ]
        )
    caption = f"{timeline.label}: milliseconds by what was done; {timeline.note}"
    if (num_rows := len(iteration.threads)) > TOTALS_ROWS:
        caption += f"; the first {TOTALS_ROWS} of {num_rows} rows, all are in the page's data"
    return PageTable(caption=caption, columns=["row", *kinds], rows=rows)
