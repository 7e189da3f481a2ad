"""Compares two sets of runs, cell by cell: what a change, a machine or a version has done.

Cells of A and B match by system, scenario, workload, GPUs and device. Where a side has several sweeps, or several
protocols of a cell, the latest counts. Where each side has run only one system, and they differ, the two are compared
with each other. A and B may come from different commits, which is what they are compared for. Any other difference is
named, and they are then not comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlbench.results.fairness.differences import Difference, find_differences
from rlbench.results.reading.names import known_names
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun, Unreadable
from rlbench.results.summary.cells import CellRuns, latest, make_cells, ratio
from rlbench.results.summary.document import CellSummary, Document, Estimate, Finding
from rlbench.results.summary.findings import find_all
from rlbench.results.summary.learned_cells import learning_of_intact

COMPARED_VERSION = 2
A, B = "A", "B"
COMPARED = frozenset({"commit"})
"""Aspects in which A and B may differ and still be comparable."""

Match = tuple[str, str, str, int, str]
"""System, scenario, workload, GPUs, device."""


class Pair(Document):
    """A cell that both sides have run."""

    a: CellSummary
    b: CellSummary
    """Its `learning.against_reference` is the comparison with A."""
    ratio: Estimate | None
    """B's steps/s / A's; None where either side has no finished run."""
    a_to_reference: Estimate | None = None
    b_to_reference: Estimate | None = None
    """Steps/s / those of the reference system on the same side and the same work."""
    beside_reference: list[str] = []  # noqa: RUF012  pydantic copies it
    """Why the cells and the reference are not comparable: sentences, of both sides; empty if they are."""
    differences: list[Difference]
    comparable: bool
    """Whether nothing but `COMPARED` differs."""


class Side(Document):
    """The runs of one side, apart from the cells that both sides have."""

    name: str
    """The name that the user gave: a folder."""
    alone: list[CellSummary]
    """Cells that the other side has not run."""
    findings: list[Finding]
    num_runs: int


class Compared(Document):
    """The result of a comparison, as one document."""

    compared_version: int = COMPARED_VERSION
    reference: str | None
    comparable: bool
    differences: list[Difference]
    """The differences of all pairs, each once."""
    pairs: list[Pair]
    a: Side
    b: Side

    def heading(self) -> str:
        """`comparable`, or the reason why not."""
        if not self.pairs:
            return "nothing to compare: no cell was run on both sides"
        told = [each.sentence() for each in self.differences if each.aspect not in COMPARED]
        return "comparable" if self.comparable else f"not comparable, because of {'; '.join(told)}"

    def to_json(self) -> str:
        """The document as JSON."""
        return self.model_dump_json(indent=1) + "\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """The runs of one side, as they were read."""

    name: str
    runs: Sequence[StoredRun]
    unreadable: Sequence[Unreadable] = ()


def compare(a: Runs, b: Runs, *, reference: str | None = None, threshold: float | None = None) -> Compared:
    """Compares B's cells with A's.

    Args:
        a: the runs before, for example.
        b: the runs after.
        reference: label of a system with which the others of each side are compared as well.
        threshold: threshold of learning curves; by default the one in `--until` of the runs.

    Raises ValueError if neither side has a run of the reference.
    """
    cells = {side: newest_cells(runs.runs) for side, runs in ((A, a), (B, b))}
    systems = list(dict.fromkeys(match[0] for each in cells.values() for match in each))
    if reference is not None and reference not in systems:
        raise ValueError(f"--reference {reference}: no run of it; {known_names(reference, systems)}")
    cells[B] = _as_called(cells[B], cells[A])
    matches = [match for match in cells[A] if match in cells[B]]
    damaged: list[Unreadable] = []
    pairs = [_pair(match, cells, reference, threshold, damaged) for match in matches]
    return Compared(
        reference=reference,
        comparable=bool(pairs) and all(pair.comparable for pair in pairs),
        differences=_each_once([difference for pair in pairs for difference in pair.differences]),
        pairs=pairs,
        a=_side(a, [cell for match, cell in cells[A].items() if match not in cells[B]], damaged),
        b=_side(b, [cell for match, cell in cells[B].items() if match not in cells[A]], damaged),
    )


def newest_cells(runs: Sequence[StoredRun]) -> dict[Match, CellRuns]:
    """Cells by what they match by; of several the one that began last, in the place of the first."""
    newest: dict[Match, CellRuns] = {}
    for cell in make_cells(runs):
        own = cell.summary
        match = (own.system, own.scenario, own.workload, own.gpus, own.device)
        if match not in newest or _age(newest[match]) < _age(cell):
            newest[match] = cell
    return newest


def _as_called(cells: dict[Match, CellRuns], others: dict[Match, CellRuns]) -> dict[Match, CellRuns]:
    """Renames the only system of `cells` to the only system of `others`; no change where either has several."""
    own, theirs = ({match[0] for match in each} for each in (cells, others))
    if len(own) != 1 or len(theirs) != 1:
        return cells
    (name,) = theirs
    return {(name, *match[1:]): cell for match, cell in cells.items()}


def _age(cell: CellRuns) -> tuple[str, str]:
    """When the latest finished run of a cell began; earlier than any other if none finished."""
    return max((run.record.began for run in cell.finished), default=("", ""))


def _side(runs: Runs, alone: Sequence[CellRuns], damaged: Sequence[Unreadable]) -> Side:
    """Makes a side; `damaged` are the runs of both sides whose learning curves cannot be read."""
    records, paths = [run.record for run in latest(runs.runs)], {run.path for run in runs.runs}
    findings = find_all(records, [*runs.unreadable, *(each for each in damaged if each.path in paths)])
    return Side(name=runs.name, alone=[cell.summary for cell in alone], findings=findings, num_runs=len(records))


def _each_once(differences: Sequence[Difference]) -> list[Difference]:
    return list({difference.sentence(): difference for difference in differences}.values())


def _pair(
    match: Match,
    cells: dict[str, dict[Match, CellRuns]],
    reference: str | None,
    threshold: float | None,
    damaged: list[Unreadable],
) -> Pair:
    """Makes a pair, and adds the runs whose learning curves cannot be read to `damaged`."""
    a, b = cells[A][match], cells[B][match]
    ended = {A: [*a.finished, *a.timed_out], B: [*b.finished, *b.timed_out]}
    learning, unreadable = learning_of_intact(ended, A, threshold)
    damaged += unreadable
    found = differences(a.finished, b.finished)
    against: dict[str, Any] = {}
    beside: dict[str, None] = {}
    for side, cell in ((A, a), (B, b)):
        base = cells[side].get((reference, *match[1:])) if reference is not None else None
        if base is not None and base.summary.system != reference:
            base = None  # it has the name of the other side's system: see `_as_called`
        if base is not None and base is not cell:
            both = [run.record for run in (*cell.finished, *base.finished)]
            beside |= dict.fromkeys(each.sentence() for each in find_differences(both))
        if base is not None:
            against[f"{side.lower()}_to_reference"] = _ratio(cell, base)
    return Pair(
        a=a.summary.model_copy(update={"learning": learning.get(A)}),
        b=b.summary.model_copy(update={"learning": learning.get(B)}),
        ratio=_ratio(b, a),
        differences=found,
        comparable=all(difference.aspect in COMPARED for difference in found),
        beside_reference=list(beside),
        **against,
    )


def by_seed(cell: CellRuns | None) -> list[StoredRun]:
    """The finished runs of a side, in the order of their seeds."""
    return sorted(cell.finished, key=lambda run: run.record.cell.seed) if cell else []


def differences(a: Sequence[StoredRun], b: Sequence[StoredRun]) -> list[Difference]:
    """The aspects in which the runs of both sides differ."""
    of_a = {id(run.record) for run in a}

    def side(record: RunRecord) -> str:
        return A if id(record) in of_a else B

    return find_differences([run.record for run in (*a, *b)], side)


def _ratio(over: CellRuns, under: CellRuns) -> Estimate | None:
    """The rate of one cell / that of another; None where either has no finished run."""
    if not over.finished or not under.finished:
        return None
    if over is under:
        return Estimate(value=1)
    return ratio(over, under, over.rate / under.rate)
