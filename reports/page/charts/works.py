"""What is drawn together: the cells of a scenario and workload, as series over the number of GPUs.

Cells of several sweeps share a chart, and each series has a name that tells it from the others. Comparisons
(`results.summary.document.Comparison`) and scaling stay within a sweep.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlbench.reports.figures.columns import unit_of
from rlbench.reports.page.charts.chart import Facets
from rlbench.results.records.units import StepUnit
from rlbench.results.summary.document import CellSummary, Estimate, Kind, Reference, Summary

KINDS: dict[Kind, str] = {"measured": "measured", "emulated": "emulated", "predicted": "predicted"}
"""Names of the kinds in chart titles."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A cell and its place in the summary."""

    place: int
    cell: CellSummary

    def path(self, field: str) -> str:
        """Path of a field of the cell in the summary."""
        return f"cells.{self.place}.{field}"

    @property
    def facets(self) -> Facets:
        """What the page's filters know it by."""
        return {"system": self.cell.system, "gpus": self.cell.gpus, "device": self.cell.device}


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingSeries:
    """Cells that differ only in the number of GPUs, the fewest first."""

    label: str
    """Name in a chart: the system, what tells it from others of the same system, and its kind if the summary has others
    too."""
    cells: Sequence[Placed]

    @property
    def system(self) -> str:
        """The system, with its settings."""
        return self.cells[0].cell.system

    @property
    def sweep(self) -> str:
        """The sweep."""
        return self.cells[0].cell.sweep

    @property
    def kind(self) -> Kind:
        """The kind of its figures: measured, emulated or predicted."""
        return self.cells[0].cell.kind

    @property
    def device(self) -> str:
        """The device that its cells ran on, or would."""
        return self.cells[0].cell.device

    @property
    def facets(self) -> dict[str, Any]:
        """What the page's filters know it by."""
        return {"system": self.system, "device": self.device}

    @property
    def finished(self) -> list[Placed]:
        """The cells that have a rate."""
        return [each for each in self.cells if each.cell.steps_per_s is not None]

    def on(self, gpus: int) -> Placed | None:
        """The cell on this number of GPUs, if it has a rate."""
        return next((each for each in self.finished if each.cell.gpus == gpus), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A scenario and workload."""

    scenario: str
    workload: str
    series: Sequence[ScalingSeries]
    published: Sequence[tuple[int, Reference]]
    """Published figures, with their places in the summary."""
    alone: bool = False
    """Whether the summary has no other work: titles need not name it."""

    @property
    def facets(self) -> Facets:
        """What the page's filters know it by."""
        return {"scenario": self.scenario, "workload": self.workload}

    @property
    def cells(self) -> list[Placed]:
        """All cells, in the order of the summary."""
        return sorted((each for series in self.series for each in series.cells), key=lambda each: each.place)

    @property
    def unit(self) -> StepUnit:
        """What its samples are."""
        return unit_of(each.cell for each in self.cells)

    @property
    def name(self) -> str:
        """Scenario and workload."""
        return f"{self.scenario}, {self.workload}"

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of figures that it has."""
        return [kind for kind in KINDS if any(series.kind == kind for series in self.series)]

    def titled(self, what: str, drawn: Iterable[Placed] | None = None) -> str:
        """The title of a chart: what it shows, of which work if there are several, and kinds that were not measured.

        `drawn`: the cells that it shows, if these are not all.
        """
        kinds = self.kinds if drawn is None else {each.cell.kind for each in drawn}
        return with_kinds(what if self.alone else f"{what}: {self.name}", kinds)

    @property
    def gpus(self) -> list[int]:
        """The numbers of GPUs for which there are rates, ascending."""
        return sorted({each.cell.gpus for series in self.series for each in series.finished})

    @property
    def gpus_title(self) -> str:
        """The title of an axis of the number of GPUs."""
        if all(each.cell.device == "cpu" for each in self.cells):
            return "CPU ranks"
        return {"emulated": "Emulated GPUs", "predicted": "GPUs (predicted)"}.get("".join(self.kinds), "GPUs")

    def count(self, gpus: int) -> str:
        """`8 GPUs`, `1 CPU rank`."""
        unit = "CPU rank" if self.gpus_title == "CPU ranks" else "GPU"
        return f"{gpus:,} {unit}" if gpus == 1 else f"{gpus:,} {unit}s"

    @property
    def num_sweeps(self) -> int:
        """Number of sweeps that its cells come from."""
        return len({series.sweep for series in self.series})

    def alike(self) -> list[str]:
        """A line for each group of systems whose rates are equal wherever they ran: in a chart one hides the other."""
        groups: dict[tuple[tuple[int, Estimate | None], ...], list[str]] = defaultdict(list)
        for series in self.series:
            groups[tuple((each.cell.gpus, each.cell.steps_per_s) for each in series.finished)].append(series.label)
        return [f"Equal everywhere: {' and '.join(names)}." for rates, names in groups.items() if rates and names[1:]]

    def not_drawn(self) -> list[str]:
        """A line that lists the cells without a rate, if there are any."""
        missing = [each.cell for each in self.cells if each.cell.steps_per_s is None]
        said = [f"{c.system} on {gpus_of(c)} ({', '.join(sorted(c.statuses))})" for c in missing]
        return [f"Not drawn, for no run finished: {'; '.join(said)}."] if said else []


def with_kinds(name: str, kinds: Iterable[Kind]) -> str:
    """A name with the kinds of its figures, unless all were measured on hardware."""
    said = [KINDS[kind] for kind in KINDS if kind in set(kinds)]
    return name if said == ["measured"] else f"{name} ({' and '.join(said)})"


def most_common(gpus: Iterable[int]) -> int:
    """The most frequent number of GPUs, the largest of several such; 0 if there are none."""
    counts = Counter(gpus)
    return max(counts, key=lambda each: (counts[each], each), default=0)


def gpus_of(cell: CellSummary) -> str:
    """`8 GPUs`, with the kind if they were not measured; `2 CPU ranks`."""
    if cell.kind == "measured" and cell.device == "cpu":
        return "1 CPU rank" if cell.gpus == 1 else f"{cell.gpus} CPU ranks"
    number = "1 GPU" if cell.gpus == 1 else f"{cell.gpus} GPUs"
    return number if cell.kind == "measured" else f"{number} ({cell.kind})"


def works(summary: Summary) -> list[Work]:
    """The works of a summary, in the order of its cells."""
    found: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    for place, cell in enumerate(summary.cells):
        found[cell.scenario, cell.workload].append(Placed(place, cell))
    several_kinds = len({cell.kind for cell in summary.cells}) > 1
    return [
        Work(
            scenario=scenario,
            workload=workload,
            series=list(_series(cells, several_kinds=several_kinds)),
            published=list(_published(summary, cells)),
            alone=len(found) == 1,
        )
        for (scenario, workload), cells in found.items()
    ]


def _published(summary: Summary, cells: Sequence[Placed]) -> Iterator[tuple[int, Reference]]:
    """The published figures of the systems in these cells, which are of one work, with their places in the summary."""
    work, systems = cells[0].cell, {placed.cell.system for placed in cells}
    # A scenario that differs only in its time scale is the scenario of the paper.
    scenarios = {work.scenario, work.scenario.partition(":time_scale=")[0]}
    for place, each in enumerate(summary.published):
        if each.workload == work.workload and each.scenario in scenarios and each.system in systems:
            yield place, each


Key = tuple[str, str, str, str, float, Kind]


def _key(cell: CellSummary) -> Key:
    return (cell.system, cell.sweep, cell.device, cell.protocol, cell.time_scale, cell.kind)


def _short(sweeps: set[str]) -> dict[str, str]:
    """Short names of sweeps: the random end of each name if these ends differ, else the whole names."""
    ends = {sweep: sweep.rpartition("-")[2] for sweep in sweeps}
    return ends if len(set(ends.values())) == len(sweeps) else {sweep: sweep for sweep in sweeps}


def _series(cells: Sequence[Placed], *, several_kinds: bool) -> Iterator[ScalingSeries]:
    groups: dict[Key, list[Placed]] = defaultdict(list)
    for each in cells:
        groups[_key(each.cell)].append(each)
    short = _short({each.cell.sweep for each in cells})
    for key, group in groups.items():
        system, sweep, device, protocol, time_scale, kind = key
        rivals = [other for other in groups if (other[0], other[-1]) == (system, kind)]
        told = (f"sweep {short[sweep]}", device, protocol, f"time scale {time_scale:g}")
        differing = [text for at, text in enumerate(told, 1) if len({other[at] for other in rivals}) > 1]
        name = ", ".join([system, *differing])
        if several_kinds and kind != "measured":
            name += f" ({kind})"
        yield ScalingSeries(label=name, cells=sorted(group, key=lambda each: each.cell.gpus))
