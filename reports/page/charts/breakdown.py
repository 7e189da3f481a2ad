"""How ranks and environments spent their time: stacked bars of shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlbench.reports.figures.format import percent
from rlbench.reports.page.charts.chart import Chart, Entry, PageTable, Panel, datum, words
from rlbench.reports.page.charts.over_gpus import LEAST_HEIGHT, ROOM
from rlbench.reports.page.charts.style import in_order, label, plain, row_height, span_style
from rlbench.reports.page.charts.works import Placed, Work, works
from rlbench.results.summary.document import Summary

ROW_HEIGHT = 24
FACETS = ("system", "gpus", "device")
NOTES = {
    "time_shares": "A rank's simulate is the time in which it waits for its environments' steps. The largest share "
    "need not bound it: a rank that infers for whoever waits fills its time with small batches.",
    "env_time_shares": "An environment's wait:inference is the time in which it waits for its next action.",
}
MOST_ROWS = 24
"""Maximum rows of a chart; if there are more, there is one for each number of GPUs."""
LEAST_SHARE = 0.0005
"""Share of the time from which a kind of span is drawn; the table has all."""

Row = tuple[str, Placed]
"""Name of a bar, and its cell."""


def charts(summary: Summary) -> list[Chart]:
    """For each work, a chart of its ranks and a chart of its environments."""
    made = []
    for number, work in enumerate(works(summary)):
        made += _chart(work, f"time-{number}", "time_shares", "Where the ranks' time went")
        made += _chart(work, f"env-time-{number}", "env_time_shares", "Where the environments' time went")
    return made


def _chart(work: Work, name: str, field: str, what: str) -> list[Chart]:
    """One chart; of many rows one for each number of GPUs, the most first, of which the page shows one."""
    rows = [
        (f"{series.label} x{placed.cell.gpus}", placed)
        for series in work.series
        for placed in series.finished
        if getattr(placed.cell, field)
    ]
    if len(rows) <= MOST_ROWS:
        return [_of_rows(work, rows, name, field, work.titled(what, (placed for _, placed in rows)))] if rows else []
    charts = []
    for gpus in sorted({placed.cell.gpus for _, placed in rows}, reverse=True):
        own = [row for row in rows if row[1].cell.gpus == gpus]
        title = work.titled(f"{what}, on {work.count(gpus)}", (placed for _, placed in own))
        chart = _of_rows(work, own, f"{name}-{gpus}", field, title)
        charts.append(replace(chart, facets={**chart.facets, "gpus": gpus}, one_of=f"{name}: {field}"))
    return charts


def _of_rows(work: Work, rows: Sequence[Row], name: str, field: str, title: str) -> Chart:
    kinds = in_order({kind for _, placed in rows for kind in getattr(placed.cell, field)})
    return Chart(
        title=title,
        panels=[Panel(id=name, figure=_figure(rows, field, [kind for kind in kinds if _is_seen(rows, field, kind)]))],
        table=PageTable(
            caption=title,
            columns=["system", work.gpus_title, *kinds],
            rows=[_row(placed, row_name, field, kinds) for row_name, placed in rows],
            num_names=2,
            facets=[placed.facets for _, placed in rows],
        ),
        notes=[NOTES[field], *work.not_drawn()],
        told=[
            (row_name, placed.cell.bottleneck.sentence, placed.facets)
            for row_name, placed in rows
            if field == "time_shares" and placed.cell.bottleneck is not None
        ],
        facets=work.facets,
    )


def _is_seen(rows: Sequence[Row], field: str, kind: str) -> bool:
    """Whether a kind has a share that is seen in a bar: else it would stand in the legend alone."""
    return any(getattr(placed.cell, field).get(kind, 0) >= LEAST_SHARE for _, placed in rows)


def _figure(rows: Sequence[Row], field: str, kinds: Sequence[str]) -> dict[str, object]:
    names = [label(name) for name, _ in rows]
    data = []
    for kind in kinds:
        colour, hatching = span_style(kind)
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": plain(kind),
                "x": [getattr(placed.cell, field).get(kind) for _, placed in rows],
                "y": names,
                "marker": {"color": colour, "pattern": {"shape": hatching, "solidity": 0.35}, "line": {"width": 0}},
                "hovertemplate": "%{y}<br>%{fullData.name}: %{x:.1%} of the time<extra></extra>",
                "meta": {"facets": {facet: [placed.facets[facet] for _, placed in rows] for facet in FACETS}},
            }
        )
    layout = {
        "barmode": "stack",
        "bargap": 0.25,
        "xaxis": {"title": {"text": "Share of the time (%)"}, "tickformat": ".0%", "range": [0, 1], "dtick": 0.2},
        "yaxis": {"type": "category", "autorange": "reversed", "categoryorder": "array", "categoryarray": names},
        "height": max(LEAST_HEIGHT, ROOM + row_height(names, ROW_HEIGHT) * len(names)),
        "meta": {"row": row_height(names, ROW_HEIGHT), "room": ROOM},
        "legend": {"traceorder": "normal"},
    }
    return {"data": data, "layout": layout}


def _row(placed: Placed, name: str, field: str, kinds: Sequence[str]) -> list[Entry]:
    cell, shares = placed.cell, getattr(placed.cell, field)
    entries = [words(name.rpartition(" x")[0]), words(f"{cell.gpus:,}")]
    for kind in kinds:
        known = kind in shares
        entries.append(datum(placed.path(f"{field}.{kind}"), shares[kind], percent) if known else words("-"))
    return entries
