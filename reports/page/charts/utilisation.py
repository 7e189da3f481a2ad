"""How busy the GPUs were, and which other resources runs used."""

from __future__ import annotations

from rlbench.reports.figures.format import NONE, number, percent
from rlbench.reports.page.charts.chart import Chart, Entry, PageTable, Panel, datum, words
from rlbench.reports.page.charts.over_gpus import Quantity, figure, names
from rlbench.reports.page.charts.style import styles
from rlbench.reports.page.charts.works import Placed, ScalingSeries, works
from rlbench.results.summary.document import Summary

UTILISATION = Quantity(field="utilisation", title="Utilisation (%)", write=percent, tick=".0%", hover_format=".1%")
COLUMNS = ["utilisation", "read from", "CPU (100 % is one core)", "peak memory", "GPU power (W)"]


def charts(summary: Summary) -> list[Chart]:
    """Utilisation against the number of GPUs, with its source."""
    look = styles(summary)
    made = []
    for place, work in enumerate(works(summary)):
        known = [each for each in work.cells if each.cell.utilisation is not None]
        if not any(each.cell.utilisation for each in known):
            continue
        title = work.titled("Utilisation, the busy share of the GPUs", known)
        drawn = figure(work, look, UTILISATION)
        axis = "yaxis" if len(work.gpus) > 1 else "xaxis"
        drawn["layout"][axis] |= {"range": [0, 1.05]}
        sources = dict.fromkeys(each.cell.utilisation_source for each in known)
        made.append(
            Chart(
                title=title,
                panels=[Panel(id=f"utilisation-{place}", figure=drawn)],
                table=PageTable(
                    caption=title,
                    columns=["system", work.gpus_title, *COLUMNS],
                    rows=[_row(each, series) for series in work.series for each in series.cells],
                    num_names=2,
                    facets=[each.facets for series in work.series for each in series.cells],
                ),
                notes=[f"Read from: {'; '.join(sources)}.", *work.not_drawn()],
                facets=work.facets,
            )
        )
    return made


def _row(placed: Placed, series: ScalingSeries) -> list[Entry]:
    cell = placed.cell
    return [
        *names(series, placed),
        datum(placed.path("utilisation"), cell.utilisation, percent),
        words(cell.utilisation_source),
        datum(placed.path("cpu_percent"), cell.cpu_percent, _whole_percent),
        datum(placed.path("memory_bytes"), cell.memory_bytes, _gibibytes),
        datum(placed.path("gpu_power_w"), cell.gpu_power_w, number),
    ]


def _whole_percent(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}%"


def _gibibytes(value: float | None) -> str:
    return NONE if value is None else f"{number(value / 2**30)} GiB"
