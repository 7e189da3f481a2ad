"""Makes the summary of runs: cells over seeds, scaling, comparisons, fairness, learning, and answers.

runs --> cells (`cells.py`) --> system against system --> fairness, learning --> sentences (`answers.py`)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlbench.results.fairness.differences import find_differences
from rlbench.results.records import labels
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun, Unreadable
from rlbench.results.summary.across_tasks import across_tasks
from rlbench.results.summary.answers import answer
from rlbench.results.summary.cells import CellRuns, Group, latest, make_cells, other_tries, ratio
from rlbench.results.summary.document import Comparison, Fairness, Learning, Summary
from rlbench.results.summary.findings import find_all, find_bought_speed
from rlbench.results.summary.learned_cells import learning_of_intact
from rlbench.results.summary.references import references
from rlbench.results.summary.scaled import scale


def summarise(
    runs: Sequence[StoredRun],
    *,
    unreadable: Sequence[Unreadable] = (),
    reference: str | None = None,
    threshold: float | None = None,
) -> Summary:
    """Makes the summary.

    Args:
        runs: runs of one or several sweeps; of a cell that was run again, the latest finished run counts, and the
            findings name the others.
        unreadable: folders of runs that could not be read, and why.
        reference: label of the system with which others are compared; by default the first of the newest sweep.
        threshold: threshold of learning curves; by default the one in `--until` of the runs.

    Raises ValueError if no run is of the reference.
    """
    runs = scale(runs)
    records = [run.record for run in runs]
    reference = _reference(records, reference)
    cells = make_cells(runs)
    fairness = list(_fairness(cells))
    cells, damaged = _with_learning(cells, reference, threshold)
    leaders = {_leader(group, reference).summary.id for group in _side_by_side(cells).values()}
    comparisons = [_compare(a, b) for a, b in _pairs(cells, reference)]
    summaries = [cell.summary.model_copy(update={"leads": cell.summary.id in leaders}) for cell in cells]
    return Summary(
        reference=reference,
        answers=answer(summaries, comparisons, reference),
        findings=[
            *find_all(
                [run.record for run in latest(runs)],
                [*unreadable, *damaged],
                [run.record for run in other_tries(runs)],
            ),
            *find_bought_speed(summaries, comparisons, reference),
        ],
        fairness=fairness,
        cells=summaries,
        comparisons=comparisons,
        across_tasks=across_tasks(summaries, reference),
        published=references(summaries),
        runs=records,
    )


def _reference(records: Sequence[RunRecord], wanted: str | None) -> str | None:
    systems = list(dict.fromkeys(labels.system(record.cell) for record in records))
    if wanted is not None and wanted not in systems:
        raise ValueError(f"--reference {wanted}: no run of it; there are: {', '.join(systems) or 'none'}")
    if wanted is not None or not records:
        return wanted
    newest = max(records, key=lambda record: record.began).sweep
    first = min((record for record in records if record.sweep == newest), key=lambda record: record.started_at)
    return labels.system(first.cell)


def _side_by_side(cells: Sequence[CellRuns]) -> dict[Group, list[CellRuns]]:
    groups: dict[Group, list[CellRuns]] = defaultdict(list)
    for cell in cells:
        if cell.finished:
            groups[cell.group].append(cell)
    return groups


def _fairness(cells: Sequence[CellRuns]) -> Iterable[Fairness]:
    for (sweep, scenario, workload, gpus), group in _side_by_side(cells).items():
        records = [run.record for cell in group for run in cell.finished]
        if len(records) > 1:
            yield Fairness(
                sweep=sweep, scenario=scenario, workload=workload, gpus=gpus, differences=find_differences(records)
            )


def _pairs(cells: Sequence[CellRuns], reference: str | None) -> Iterable[tuple[CellRuns, CellRuns]]:
    """In each group: the leader against all others, all against the reference, and variants against their parent."""
    for group in _side_by_side(cells).values():
        leader = _leader(group, reference)
        pairs = [(leader, other) for other in group if other is not leader]
        for base in (cell for cell in group if cell.summary.system == reference and cell is not leader):
            pairs += ((other, base) for other in group if other is not base and other is not leader)
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


def _leader(group: Sequence[CellRuns], reference: str | None) -> CellRuns:
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


def _with_learning(
    cells: Sequence[CellRuns], reference: str | None, threshold: float | None
) -> tuple[list[CellRuns], list[Unreadable]]:
    """Adds to each cell how well its runs learned; also returns the runs whose curves cannot be read."""
    learning: dict[str, Learning] = {}
    damaged: list[Unreadable] = []
    for group in _side_by_side(cells).values():
        of_cells = {cell.summary.id: [*cell.finished, *cell.timed_out] for cell in group}
        base = next((cell.summary.id for cell in group if cell.summary.system == reference), None)
        of_group, found = learning_of_intact(of_cells, base, threshold)
        learning |= of_group
        damaged += found
    with_learning = [
        replace(cell, summary=cell.summary.model_copy(update={"learning": learning.get(cell.summary.id)}))
        for cell in cells
    ]
    return with_learning, damaged
