"""Makes the summary of runs: cells over seeds, scaling, comparisons, fairness, learning, and answers.

runs --> cells (`cells.py`) --> system against system --> fairness, learning --> sentences (`answers.py`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlbench.results.records.store import StoredRun, Unreadable
from rlbench.results.summary.across_tasks import across_tasks
from rlbench.results.summary.answers import answer
from rlbench.results.summary.cells import CellRuns, latest, make_cells, other_tries
from rlbench.results.summary.document import Learning, Summary
from rlbench.results.summary.findings import find_all, find_bought_speed
from rlbench.results.summary.learned_cells import learning_of_intact
from rlbench.results.summary.references import references
from rlbench.results.summary.scaled import scale
from rlbench.results.summary.side_by_side import compared, fairness, leader, reference_of, side_by_side


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
    reference = reference_of(records, reference)
    cells = make_cells(runs)
    cells, damaged = _with_learning(cells, reference, threshold)
    leaders = {leader(group, reference).summary.id for group in side_by_side(cells).values()}
    comparisons = list(compared(cells, reference))
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
        fairness=list(fairness(cells)),
        cells=summaries,
        comparisons=comparisons,
        across_tasks=across_tasks(summaries, reference),
        published=references(summaries),
        runs=records,
    )


def _with_learning(
    cells: Sequence[CellRuns], reference: str | None, threshold: float | None
) -> tuple[list[CellRuns], list[Unreadable]]:
    """Adds to each cell how well its runs learned; also returns the runs whose curves cannot be read."""
    learning: dict[str, Learning] = {}
    damaged: list[Unreadable] = []
    for group in side_by_side(cells).values():
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
