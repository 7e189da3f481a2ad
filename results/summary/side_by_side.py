"""System against system: cells of the same work on as many GPUs, the fastest, and whether they are comparable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rlbench.results.fairness.differences import find_differences
from rlbench.results.reading.names import known_names
from rlbench.results.records import labels
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.cells import CellRuns, Group, ratio
from rlbench.results.summary.document import Comparison, Fairness


def reference_of(records: Sequence[RunRecord], wanted: str | None = None) -> str | None:
    """The system that others are held against: the first of the newest sweep, unless one is wanted.

    Raises ValueError if no run is of the wanted one.
    """
    systems = list(dict.fromkeys(labels.system(record.cell) for record in records))
    if wanted is not None and wanted not in systems:
        raise ValueError(f"--reference {wanted}: no run of it; {known_names(wanted, systems)}")
    if wanted is not None or not records:
        return wanted
    newest = max(records, key=lambda record: record.began).sweep
    first = min((record for record in records if record.sweep == newest), key=lambda record: record.started_at)
    return labels.system(first.cell)


def side_by_side(cells: Sequence[CellRuns]) -> dict[Group, list[CellRuns]]:
    """The cells with finished runs, by the group that they are compared in."""
    groups: dict[Group, list[CellRuns]] = defaultdict(list)
    for cell in cells:
        if cell.finished:
            groups[cell.group].append(cell)
    return groups


def fairness(cells: Sequence[CellRuns]) -> Iterator[Fairness]:
    """How the runs of each group differ apart from their systems."""
    for (sweep, scenario, workload, gpus), group in side_by_side(cells).items():
        records = [run.record for cell in group for run in cell.finished]
        if len(records) > 1:
            yield Fairness(
                sweep=sweep, scenario=scenario, workload=workload, gpus=gpus, differences=find_differences(records)
            )


def compared(cells: Sequence[CellRuns], reference: str | None) -> Iterator[Comparison]:
    """In each group: the leader against all others, all against the reference, and variants against their parent."""
    for a, b in _pairs(cells, reference):
        yield _compare(a, b)


def _pairs(cells: Sequence[CellRuns], reference: str | None) -> Iterator[tuple[CellRuns, CellRuns]]:
    for group in side_by_side(cells).values():
        first = leader(group, reference)
        pairs = [(first, other) for other in group if other is not first]
        for base in (cell for cell in group if cell.summary.system == reference and cell is not first):
            pairs += ((other, base) for other in group if other is not base and other is not first)
        systems = [cell.summary.system for cell in group]
        for variant in group:
            parent = labels.parent(variant.summary.system, systems)
            pairs += ((variant, cell) for cell in group if cell.summary.system == parent)
        there: set[frozenset[str]] = set()
        for a, b in pairs:
            key = frozenset((a.summary.id, b.summary.id))
            if key not in there:
                there.add(key)
                yield a, b


def leader(group: Sequence[CellRuns], reference: str | None) -> CellRuns:
    """The fastest of the most systems of a group that may be compared with each other.

    Where several classes have as many, the one with the reference counts, or, if no two may be compared, the fastest.

    Whether two may be compared is whether some properties of their runs are equal, so each is of one class.
    """
    classes: list[list[CellRuns]] = []
    for cell in group:
        own = next((each for each in classes if _are_comparable(each[0], cell)), [])
        if not own:
            classes.append(own)
        own.append(cell)
    chosen = max(
        classes,
        key=lambda each: (
            len(each),
            len(each) > 1 and any(c.summary.system == reference for c in each),
            max(c.rate for c in each),
        ),
    )
    return max(chosen, key=lambda cell: cell.rate)


def _are_comparable(a: CellRuns, b: CellRuns) -> bool:
    return not find_differences([run.record for run in (*a.finished, *b.finished)])


def _compare(a: CellRuns, b: CellRuns) -> Comparison:
    return Comparison(
        sweep=a.summary.sweep,
        scenario=a.summary.scenario,
        workload=a.summary.workload,
        gpus=a.summary.gpus,
        kind=a.summary.kind,
        system=a.summary.system,
        against=b.summary.system,
        ratio=ratio(a, b, a.rate / b.rate),
        comparable=_are_comparable(a, b),
    )
