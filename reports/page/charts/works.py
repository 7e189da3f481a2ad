"""What is drawn together: the cells of a scenario and workload, as series over the number of GPUs.

Cells of several sweeps stand in one chart, each series under a name that tells it from the others; they are compared
within their sweeps only (`results.summary.document.Comparison`), and so is what scaling is relative to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from results.summary.document import CellSummary, Kind, Reference, Summary

KINDS: dict[Kind, str] = {"measured": "measured", "emulated": "emulated GPUs", "predicted": "predicted"}
"""What a chart's title calls them."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A cell and where it stands in the summary."""

    place: int
    cell: CellSummary

    def path(self, field: str) -> str:
        """Where a field of it stands."""
        return f"cells.{self.place}.{field}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """What differs in the number of GPUs alone, the fewest first."""

    label: str
    """Its name in a chart: the system, and what tells it from others of the same system; `(predicted)` always."""
    cells: Sequence[Placed]

    @property
    def system(self) -> str:
        """The system, with its settings."""
        return self.cells[0].cell.system

    @property
    def sweep(self) -> str:
        """Its sweep."""
        return self.cells[0].cell.sweep

    @property
    def kind(self) -> Kind:
        """Whether it was measured."""
        return self.cells[0].cell.kind

    @property
    def finished(self) -> list[Placed]:
        """The cells that have a rate."""
        return [each for each in self.cells if each.cell.steps_per_s is not None]

    def on(self, gpus: int) -> Placed | None:
        """The cell on so many GPUs, if it has a rate."""
        return next((each for each in self.finished if each.cell.gpus == gpus), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A scenario and workload."""

    scenario: str
    workload: str
    series: Sequence[Series]
    published: Sequence[tuple[int, Reference]]
    """With their places in the summary."""

    @property
    def cells(self) -> list[Placed]:
        """All its cells, in their order in the summary."""
        return sorted((each for series in self.series for each in series.cells), key=lambda each: each.place)

    @property
    def name(self) -> str:
        """Scenario and workload."""
        return f"{self.scenario}, {self.workload}"

    @property
    def kinds(self) -> list[Kind]:
        """What kinds of figures it has."""
        return [kind for kind in KINDS if any(series.kind == kind for series in self.series)]

    @property
    def title(self) -> str:
        """The end of a chart's title, which says what was not measured on hardware."""
        return with_kinds(self.name, self.kinds)

    def title_for(self, drawn: Iterable[Placed]) -> str:
        """The same, where some of the cells are drawn."""
        return with_kinds(self.name, {each.cell.kind for each in drawn})

    @property
    def gpus(self) -> list[int]:
        """On how many GPUs there are rates."""
        return sorted({each.cell.gpus for series in self.series for each in series.finished})

    @property
    def gpus_title(self) -> str:
        """What an axis calls them."""
        if all(each.cell.device == "cpu" for each in self.cells):
            return "CPU ranks"
        return {"emulated": "Emulated GPUs", "predicted": "GPUs (predicted)"}.get("".join(self.kinds), "GPUs")

    def count(self, gpus: int) -> str:
        """`8 GPUs`, `1 CPU rank`."""
        unit = "CPU rank" if self.gpus_title == "CPU ranks" else "GPU"
        return f"{gpus:,} {unit}" if gpus == 1 else f"{gpus:,} {unit}s"

    @property
    def num_sweeps(self) -> int:
        """How many sweeps its cells come from."""
        return len({series.sweep for series in self.series})

    def not_drawn(self) -> list[str]:
        """A line about cells that have no rate, if there are any."""
        missing = [each.cell for each in self.cells if each.cell.steps_per_s is None]
        said = [f"{c.system} on {gpus_of(c)} ({', '.join(sorted(c.statuses))})" for c in missing]
        return [f"Not drawn, for no run finished: {'; '.join(said)}."] if said else []


def with_kinds(name: str, kinds: Iterable[Kind]) -> str:
    """A name, and what kinds of figures there are, unless all were measured on hardware."""
    said = [KINDS[kind] for kind in KINDS if kind in set(kinds)]
    return name if said == ["measured"] else f"{name} ({' and '.join(said)})"


def most_common(gpus: Iterable[int]) -> int:
    """Of some numbers of GPUs the one that is there most often, of several such the largest; 0 of none."""
    counts = Counter(gpus)
    return max(counts, key=lambda each: (counts[each], each), default=0)


def gpus_of(cell: CellSummary) -> str:
    """`8 GPUs`, and whether they are real; `2 CPU ranks`."""
    if cell.kind == "measured" and cell.device == "cpu":
        return "1 CPU rank" if cell.gpus == 1 else f"{cell.gpus} CPU ranks"
    number = "1 GPU" if cell.gpus == 1 else f"{cell.gpus} GPUs"
    return number if cell.kind == "measured" else f"{number} ({cell.kind})"


def works(summary: Summary) -> list[Work]:
    """What the summary has, in the order of its cells."""
    found: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    for place, cell in enumerate(summary.cells):
        found[cell.scenario, cell.workload].append(Placed(place, cell))
    return [
        Work(
            scenario=scenario,
            workload=workload,
            series=list(_series(cells)),
            published=list(_published(summary, scenario, workload)),
        )
        for (scenario, workload), cells in found.items()
    ]


def _published(summary: Summary, scenario: str, workload: str) -> Iterator[tuple[int, Reference]]:
    for place, each in enumerate(summary.published):
        # A scenario with a setting of the clock alone is the scenario that a paper wrote about.
        if each.workload == workload and each.scenario in {scenario, scenario.partition(":time_scale=")[0]}:
            yield place, each


Key = tuple[str, str, str, str, float, Kind]


def _key(cell: CellSummary) -> Key:
    return (cell.system, cell.sweep, cell.device, cell.protocol, cell.time_scale, cell.kind)


def _short(sweeps: set[str]) -> dict[str, str]:
    """Sweeps by the end of their names, which are random letters, as far as that tells them apart."""
    ends = {sweep: sweep.rpartition("-")[2] for sweep in sweeps}
    return ends if len(set(ends.values())) == len(sweeps) else {sweep: sweep for sweep in sweeps}


def _series(cells: Sequence[Placed]) -> Iterator[Series]:
    groups: dict[Key, list[Placed]] = defaultdict(list)
    for each in cells:
        groups[_key(each.cell)].append(each)
    short = _short({each.cell.sweep for each in cells})
    several_kinds = len({each.cell.kind for each in cells}) > 1
    for key, group in groups.items():
        system, sweep, device, protocol, time_scale, kind = key
        rivals = [other for other in groups if (other[0], other[-1]) == (system, kind)]
        told = (f"sweep {short[sweep]}", device, protocol, f"time scale {time_scale:g}")
        differing = [text for at, text in enumerate(told, 1) if len({other[at] for other in rivals}) > 1]
        name = ", ".join([system, *differing])
        if kind == "predicted" or (kind == "emulated" and several_kinds):
            name += f" ({kind})"
        yield Series(label=name, cells=sorted(group, key=lambda each: each.cell.gpus))
