"""Tables of systems by number of GPUs, and of systems against each other."""

from __future__ import annotations

from rlbench.reports.figures.format import NONE
from rlbench.reports.page.charts.chart import Entry, Facets, PageTable, Piece, datum, estimated, times, words
from rlbench.reports.page.charts.over_gpus import rate_of
from rlbench.reports.page.charts.works import KINDS, Placed, Work, works
from rlbench.results.records import units
from rlbench.results.summary.document import Comparison, Kind, Summary

BREAK = Piece("\n")
"""What follows is on the next line of the entry."""


def tables(summary: Summary) -> list[PageTable]:
    """For each work, steps/s and speed-up of each system on each number of GPUs."""
    return [_table(work) for work in works(summary)]


def _table(work: Work) -> PageTable:
    gpus = sorted({each.cell.gpus for each in work.cells})
    rows, facets = list[list[Entry]](), list[Facets]()
    for series in work.series:
        by_gpus = {each.cell.gpus: each for each in series.cells}
        figures = [_figures(by_gpus[count]) if count in by_gpus else words("") for count in gpus]
        rows.append([words(series.label), *figures])
        facets.append({**work.facets, **series.facets})
    return PageTable(
        caption=work.titled(f"{_rates(work)} [95 % interval]; speed-up over the fewest GPUs, efficiency"),
        columns=["system", *(work.count(count) for count in gpus)],
        rows=rows,
        facets=facets,
        column_facets=[{}, *({"gpus": count} for count in gpus)],
    )


def _rates(work: Work) -> str:
    """`Steps/s`; with several agents, `Agent steps/s and env steps/s`."""
    return units.capitalised(" and ".join(units.rates(work.unit)))


def _figures(placed: Placed) -> Entry:
    """The rates, speed-up and efficiency; also how runs ended, if some did not finish."""
    cell = placed.cell
    bad = ", ".join(f"{count} {status}" for status, count in cell.statuses.items() if status != "finished")
    if cell.steps_per_s is None:
        return words(bad or NONE)
    value, *interval = estimated(placed.path("steps_per_s"), cell.steps_per_s)
    entry = (value, BREAK, *interval) if interval else (value,)
    if cell.env_steps_per_s is not None:
        entry += (BREAK, *datum(placed.path("env_steps_per_s"), cell.env_steps_per_s), Piece(f" {units.ENV_RATE}"))
    if cell.scaling is not None and cell.scaling_base_gpus != cell.gpus:
        entry += (BREAK, *datum(placed.path("scaling.value"), cell.scaling.value, times))
        if cell.efficiency is not None:
            share = datum(placed.path("efficiency.value"), cell.efficiency.value, _whole)
            entry += (Piece(", "), *share)
    if cell.steady is False:
        entry += (BREAK, *words("not steady"))
    return entry + words(f" ({bad})") if bad else entry


def _whole(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f}%"


def comparisons(summary: Summary) -> list[PageTable]:
    """For each work, the speed of systems as a multiple of others', and whether they may be compared."""
    made = []
    for work in works(summary):
        own = [
            (place, each)
            for place, each in enumerate(summary.comparisons)
            if (each.scenario, each.workload) == (work.scenario, work.workload)
        ]
        several = work.num_sweeps > 1
        if own:
            made.append(
                PageTable(
                    caption=work.titled(f"{rate_of(work.unit).title} as a multiple of another's [95 % interval]"),
                    columns=[
                        *("system", "relative to", work.gpus_title, *(["sweep"] if several else [])),
                        *("times as many", "comparable?"),
                    ],
                    rows=[_comparison(place, each, several=several) for place, each in own],
                    num_names=2,
                    facets=[{**work.facets, "system": each.system, "gpus": each.gpus} for _, each in own],
                )
            )
    return made


def _comparison(place: int, each: Comparison, *, several: bool) -> list[Entry]:
    ratio = estimated(f"comparisons.{place}.ratio", each.ratio, times)
    told = each.ratio.low is None or each.ratio.high is None or not each.ratio.low <= 1 <= each.ratio.high
    return [
        words(each.system),
        words(each.against),
        words(f"{each.gpus:,}{_kind(each.kind) if several else ''}"),
        *([words(each.sweep)] if several else []),
        ratio if told else (*ratio, Piece(": no significant difference")),
        words("yes" if each.comparable else "no"),
    ]


def _kind(kind: Kind) -> str:
    return "" if kind == "measured" else f" ({KINDS[kind]})"
