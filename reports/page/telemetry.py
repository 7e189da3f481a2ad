"""What runs used over time, beside how fast they were: CPU, memory, GPUs and power, as far as a run's folder has them.

    series.parquet     --> steps/s; how busy emulated GPUs were
    telemetry.parquet  --> CPU, memory, utilisation and power of real GPUs

For each scenario and workload it shows the runs on the most GPUs, up to `MOST_RUNS`. Each line has at most
`MOST_POINTS` points, each the mean of its stretch of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.format import number, percent
from rlbench.reports.page.charts.chart import Chart, Entry, Facets, Figure, PageTable, Panel, datum, words
from rlbench.reports.page.charts.over_gpus import rate_of
from rlbench.reports.page.charts.style import Style, label, plain, styles
from rlbench.reports.page.charts.works import Placed, ScalingSeries, Work, works
from rlbench.reports.page.timeline import folder_of
from rlbench.results.reading.tables import LARGEST, SERIES_ROWS, read_columns
from rlbench.results.records import units
from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.document import Summary

TELEMETRY_FILE = "telemetry.parquet"
TELEMETRY_ROWS = 1_000_000
"""Maximum rows of telemetry: 23 days, with a sample every 2 s."""
SERIES_COLUMNS = {"rank": "int64", "begin_s": "float64", "end_s": "float64", "learned": "int64"}
MOST_RUNS = 12
MOST_POINTS = 200
MOST_GPUS = 256
"""Of more GPUs of a run no columns are read."""
GIB = 2**30
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Times in seconds and values, [P] each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """One of the panels."""

    title: str
    """With its unit."""
    axis: Mapping[str, Any]
    hover: str
    """How plotly writes a value, for `str.format` with the unit of the rate."""


QUANTITIES = {
    "rate": Quantity(title="", axis={"tickformat": ","}, hover="%{{y:,.4~r}} {rate}"),
    "cpu": Quantity(title="CPU (100 % is one core)", axis={"ticksuffix": "%"}, hover="%{{y:,.0f}}%"),
    "memory": Quantity(title="Memory (GiB)", axis={}, hover="%{{y:,.3~r}} GiB"),
    "busy": Quantity(title="GPU utilisation (%)", axis={"tickformat": ".0%", "range": [0, 1.05]}, hover="%{{y:.1%}}"),
    "power": Quantity(title="GPU power (W)", axis={}, hover="%{{y:,.0f}} W"),
}
"""By the names of their panels; the title of the rate depends on what is counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OverTime:
    """What one run did and used over time."""

    name: str
    system: str
    is_first: bool
    """Whether it is of the first seed of its cell."""
    place: int
    """Place of the run in the summary."""
    record: RunRecord
    curves: Mapping[str, Curve]
    """By the names of `QUANTITIES`; those without readings are missing."""

    @property
    def facets(self) -> Facets:
        """What the page's filters know it by."""
        return {"system": self.system, "gpus": self.record.cell.gpus, "device": self.record.cell.device}


def charts(summary: Summary, folders: Mapping[str, Path]) -> list[Chart]:
    """The quantities of the runs on the most GPUs over time, for each scenario and workload.

    Args:
        summary: lists the runs.
        folders: run folders, by `sweep/id` or by run id; those without telemetry are left out.
    """
    look = styles(summary)
    made = []
    for at, work in enumerate(works(summary)):
        gpus, found = _on_most_gpus(work, summary, folders)
        problems = [f"Not drawn: {each}." for each in found if isinstance(each, str)]
        drawn = [each for each in found if not isinstance(each, str)]
        if not drawn:
            continue
        on_gpus = (placed for series in work.series if (placed := series.on(gpus)))
        title = work.titled(f"Over time, on {work.count(gpus)}", on_gpus)
        notes = [*_sources(drawn), *problems]
        if len(drawn) > MOST_RUNS:
            notes.append(f"{len(drawn) - MOST_RUNS} more runs are not drawn.")
        shown = drawn[:MOST_RUNS]
        times = np.concatenate([curve[0] for each in shown for curve in each.curves.values()])
        span = [float(f"{each:.5g}") for each in (times.min(), times.max())]
        made.append(
            Chart(
                title=title,
                panels=[
                    Panel(
                        id=f"over-time-{name}-{at}",
                        figure=_figure(shown, name, look, span, work),
                        title=quantity.title or rate_of(work.unit).title,
                    )
                    for name, quantity in QUANTITIES.items()
                    if any(name in each.curves for each in shown)
                ],
                table=_table(shown, title, work),
                notes=notes,
                facets=work.facets,
            )
        )
    return made


def _on_most_gpus(work: Work, summary: Summary, folders: Mapping[str, Path]) -> tuple[int, list[OverTime | str]]:
    """The most GPUs on which runs have telemetry, and these runs, or why one cannot be read."""
    for gpus in reversed(work.gpus):
        if found := list(_runs(work, gpus, summary, folders)):
            return gpus, found
    return 0, []


def _runs(work: Work, gpus: int, summary: Summary, folders: Mapping[str, Path]) -> Iterator[OverTime | str]:
    """The runs on a number of GPUs that have telemetry, first seeds first; or why one cannot be read."""
    places = {(run.sweep, run.id): place for place, run in enumerate(summary.runs)}
    found: list[tuple[int, ScalingSeries, Placed, int]] = []
    for series in work.series:
        if placed := series.on(gpus):
            of_cell = [places[placed.cell.sweep, run] for run in placed.cell.runs if (placed.cell.sweep, run) in places]
            in_order = sorted(of_cell, key=lambda place: summary.runs[place].cell.seed)
            found += [(nth, series, placed, place) for nth, place in enumerate(in_order)]
    for nth, series, placed, place in sorted(found, key=lambda each: each[0]):
        run = summary.runs[place]
        folder = folder_of(run, folders, TELEMETRY_FILE)
        if folder is not None:
            name = f"{series.label}, seed {run.cell.seed}" if len(placed.cell.runs) > 1 else series.label
            try:
                curves = _curves(folder, run)
            except ValueError as problem:
                yield f"{name}: {problem}"
            else:
                yield OverTime(
                    name=name, system=series.system, is_first=nth == 0, place=place, record=run, curves=curves
                )


def _curves(folder: Path, run: RunRecord) -> dict[str, Curve]:
    """The curves that a run's folder has. Raises ValueError for a damaged file."""
    num_gpus = run.cell.gpus if run.cell.gpus <= MOST_GPUS else 0
    of_gpus = {f"gpu{k}_{name}": "float64" for k in range(num_gpus) for name in ("busy", "sm_busy", "power_w")}
    told = _columns(
        folder / TELEMETRY_FILE,
        {"t": "float64"},
        {"cpu_percent": "float64", "memory_bytes": "float64", **of_gpus},
        TELEMETRY_ROWS,
    )
    series = _columns(folder / SERIES_FILE, SERIES_COLUMNS, {"gpu_busy_s": "float64"}, SERIES_ROWS)
    found = {"rate": _rate(series, "learned")}
    times = told["t"]
    for name, column, size in (("cpu", "cpu_percent", 1.0), ("memory", "memory_bytes", GIB)):
        if column in told:
            found[name] = _thinned(times, told[column] / size)
    for kind in ("sm_busy", "busy"):
        columns = [told.get(f"gpu{k}_{kind}") for k in range(num_gpus)]
        if known := _all_known(columns):
            found.setdefault("busy", _thinned(times, np.mean(known, axis=0)))
    if known := _all_known([told.get(f"gpu{k}_power_w") for k in range(num_gpus)]):
        found["power"] = _thinned(times, np.sum(known, axis=0))
    if "gpu_busy_s" in series:
        seconds, share = _rate(series, "gpu_busy_s")
        found["busy"] = seconds, share / max(1, len(np.unique(series["rank"])))
    return {name: curve for name, curve in found.items() if len(curve[0])}


def _columns(path: Path, columns: Mapping[str, str], optional: Mapping[str, str], most_rows: int) -> dict[str, Any]:
    """Columns as arrays, [S]; what is missing, not finite or beyond `LARGEST` is NaN. Raises ValueError."""
    try:
        table = read_columns(path, columns, optional, most_rows=most_rows)
    except ValueError as problem:
        raise ValueError(f"{path.name} cannot be read ({problem})") from None
    found = {}
    for name in table.column_names:
        values = table[name].cast("float64").to_numpy()
        found[name] = np.where(np.abs(values) <= LARGEST, values, np.nan)
    return found


def _all_known(columns: Sequence[NDArray[np.float64] | None]) -> list[NDArray[np.float64]]:
    """The columns of all GPUs, if all of them have readings."""
    known = [column for column in columns if column is not None and np.isfinite(column).any()]
    return known if len(known) == len(columns) else []


def _thinned(times: NDArray[np.float64], values: NDArray[np.float64]) -> Curve:
    """Means over stretches of as many samples each, so that there are no more than `MOST_POINTS`."""
    known = np.isfinite(times) & np.isfinite(values)
    times, values = times[known], values[known]
    order = np.argsort(times, kind="stable")
    begins = np.unique(np.linspace(0, len(order), min(len(order), MOST_POINTS), endpoint=False).astype(int))
    if not len(begins):
        return times, values
    sizes = np.diff(np.append(begins, len(order)))
    return np.add.reduceat(times[order], begins) / sizes, np.add.reduceat(values[order], begins) / sizes


def _rate(series: Mapping[str, NDArray[np.float64]], column: str) -> Curve:
    """A count per second over all ranks, as steps: the ends of stretches, and for each end the value there.

    A stretch is one or more iterations of the first rank; what other ranks count in an iteration is spread evenly.
    """
    ranks = np.unique(series["rank"])
    if not len(ranks):
        return np.empty(0), np.empty(0)
    first = series["rank"] == ranks[0]
    edges = np.unique(np.append(series["begin_s"][first][:1], np.sort(series["end_s"][first])))
    edges = edges[np.isfinite(edges)]
    edges = edges[np.unique(np.linspace(0, len(edges) - 1, min(len(edges), MOST_POINTS // 2 + 1)).astype(int))]
    counted = np.zeros(len(edges))
    for rank in ranks:
        own = series["rank"] == rank
        order = np.argsort(series["end_s"][own], kind="stable")
        ends, counts = series["end_s"][own][order], np.nan_to_num(series[column][own][order])
        begin = np.nanmin(series["begin_s"][own], initial=ends[0])
        counted += np.interp(edges, np.append(begin, ends), np.append(0.0, np.cumsum(counts)))
    rates = np.diff(counted) / np.diff(edges)
    return np.repeat(edges, 2)[1:-1], np.repeat(rates, 2)


def _figure(
    runs: Iterable[OverTime], name: str, look: Mapping[str, Style], span: Sequence[float], work: Work
) -> Figure:
    """The lines of a quantity; those of a system's further seeds are thinner."""
    quantity, data = QUANTITIES[name], []
    hover = quantity.hover.format(rate=units.rate(work.unit))
    for run in (each for each in runs if name in each.curves):
        times, values = run.curves[name]
        line = look[run.system].line("measured")
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label(run.name),
                "legendgroup": run.name,
                "line": line | {"width": line["width"] if run.is_first else 1},
                "x": [float(f"{each:.5g}") for each in times.tolist()],
                "y": [float(f"{each:.4g}") for each in values.tolist()],
                "hovertemplate": f"%{{fullData.name}}<br>{hover} at %{{x:,.1f}} s<extra></extra>",
                "meta": {"facets": run.facets, **({"end": plain(run.name)} if run.is_first else {})},
            }
        )
    axis = {"rangemode": "tozero", **quantity.axis, "title": {"text": ""}}
    x_axis = {"title": {"text": "Time (s)"}, "range": span}
    return {"data": data, "layout": {"height": 230, "xaxis": x_axis, "yaxis": axis}}


def _sources(runs: Sequence[OverTime]) -> list[str]:
    """Lines about what the readings are of."""
    told = dict.fromkeys(run.record.figures.utilisation.source for run in runs if "busy" in run.curves)
    said = [f"Utilisation: {'; '.join(told)}."] if told else []
    return ["The whole run, with its start-up; times are those of the run's clock.", *said]


def _table(runs: Sequence[OverTime], caption: str, work: Work) -> PageTable:
    return PageTable(
        caption=f"{caption}: means over the window, peak memory",
        columns=[
            "run",
            rate_of(work.unit).title,
            *(QUANTITIES[name].title for name in ("cpu", "memory", "busy", "power")),
        ],
        rows=[_row(run) for run in runs],
        facets=[run.facets for run in runs],
    )


def _row(run: OverTime) -> list[Entry]:
    figures, path = run.record.figures, f"runs.{run.place}.figures"
    return [
        words(run.name),
        datum(f"{path}.steps_per_s", figures.steps_per_s),
        datum(f"{path}.cpu_percent.value", figures.cpu_percent.value, _whole_percent),
        datum(f"{path}.memory_bytes.value", figures.memory_bytes.value, _gibibytes),
        datum(f"{path}.utilisation.value", figures.utilisation.value, percent),
        datum(f"{path}.gpu_power_w.value", figures.gpu_power_w.value, number),
    ]


def _whole_percent(value: float | None) -> str:
    return fmt.NONE if value is None else f"{value:,.0f}%"


def _gibibytes(value: float | None) -> str:
    return fmt.NONE if value is None else f"{number(value / GIB)} GiB"
