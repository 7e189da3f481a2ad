"""Tables of systems by number of GPUs, and of systems against each other."""

from __future__ import annotations

from rlbench.reports.figures.format import NONE
from rlbench.reports.page.charts.chart import Entry, PageTable, Piece, datum, estimated, times, words
from rlbench.reports.page.charts.over_gpus import rate_of
from rlbench.reports.page.charts.works import KINDS, Placed, Work, works
from rlbench.results.records import units
from rlbench.results.summary.document import Comparison, Kind, Summary


def tables(summary: Summary) -> list[PageTable]:
    """For each work, steps/s and speed-up of each system on each number of GPUs, and published figures."""
    return [_table(work) for work in works(summary)]


def _table(work: Work) -> PageTable:
    gpus = sorted({each.cell.gpus for each in work.cells} | {each.gpus for _, each in work.published})
    rows = []
    for series in work.series:
        by_gpus = {each.cell.gpus: each for each in series.cells}
        figures = [_figures(by_gpus[count]) if count in by_gpus else words("") for count in gpus]
        rows.append([words(series.label), *figures])
    for system in dict.fromkeys(each.system for _, each in work.published):
        of_system = {each.gpus: (place, each) for place, each in work.published if each.system == system}
        row = [words(f"{system} (published)")]
        for count in gpus:
            place, each = of_system.get(count, (0, None))
            row.append(datum(f"published.{place}.steps_per_s", each.steps_per_s) if each else words(""))
        rows.append(row)
    kind = f" ({work.kinds[0]})" if work.kinds in (["emulated"], ["predicted"]) else ""
    return PageTable(
        caption=f"{_rates(work)} with 95 % interval; speed-up (x) and efficiency over the fewest: {work.title}",
        columns=["system", *(f"{work.count(count)}{kind}" for count in gpus)],
        rows=rows,
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
    entry = estimated(placed.path("steps_per_s"), cell.steps_per_s)
    if cell.env_steps_per_s is not None:
        entry += (Piece("; "), *datum(placed.path("env_steps_per_s"), cell.env_steps_per_s))
    if cell.scaling is not None and cell.scaling_base_gpus != cell.gpus:
        entry += (Piece("; "), *datum(placed.path("scaling.value"), cell.scaling.value, times))
        if cell.efficiency is not None:
            share = datum(placed.path("efficiency.value"), cell.efficiency.value, _whole)
            entry += (Piece(", "), *share)
    if cell.steady is False:
        entry += words("; not steady")
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
                    caption=f"{rate_of(work.unit).title} as a multiple of another's, 95 % interval: {work.title}",
                    columns=["system", "against", "GPUs", *(["sweep"] if several else []), "times as many", "fair"],
                    rows=[_comparison(place, each, several=several) for place, each in own],
                    num_names=2,
                )
            )
    return made


def _comparison(place: int, each: Comparison, *, several: bool) -> list[Entry]:
    ratio = estimated(f"comparisons.{place}.ratio", each.ratio, times)
    told = each.ratio.low is None or each.ratio.high is None or not each.ratio.low <= 1 <= each.ratio.high
    return [
        words(each.system),
        words(each.against),
        words(f"{each.gpus}{_kind(each.kind)}"),
        *([words(each.sweep)] if several else []),
        ratio if told else (*ratio, Piece(": not told apart")),
        words("comparable" if each.comparable else "not comparable"),
    ]


def _kind(kind: Kind) -> str:
    return "" if kind == "measured" else f" ({KINDS[kind].removesuffix(' GPUs')})"
