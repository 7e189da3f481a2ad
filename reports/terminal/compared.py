"""Prints the comparison of two sets of runs: a row for each cell that both have run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from rlbench.reports.figures import columns as col
from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import TableColumn
from rlbench.reports.terminal.layout import aligned
from rlbench.reports.terminal.notes import caveats_of_kind, few, kind_of, packed
from rlbench.reports.terminal.table import HINT, make_console, print_blocks, print_caveats, print_lines
from rlbench.results.records import labels, units
from rlbench.results.summary.document import CellSummary, Estimate
from rlbench.results.verdicts.compare import COMPARED, Compared, Pair, Side


def print_compared(compared: Compared, console: Console | None = None, *, explain: bool = False) -> None:
    """Prints whether the sides may be compared, their cells, what spoils their figures, and what the columns mean."""
    console = console or make_console()
    print_lines(console, [f"A: {compared.a.name}", f"B: {compared.b.name}", compared.heading()])
    if allowed := [each.sentence() for each in compared.differences if each.aspect in COMPARED]:
        print_lines(console, ["; ".join(allowed)])
    pairs, cells = compared.pairs, _cells(compared.pairs)
    if pairs:
        shared, names = _names(pairs)
        print_lines(console, [*packed(shared, console.width), *kind_of(cells), ""])
        print_blocks(console, names, [_rates(compared)], pairs)
        learned = [pair for pair in pairs if _area(pair.a) != fmt.NONE or _area(pair.b) != fmt.NONE]
        print_blocks(console, names, [_learning(learned)], learned)
    print_lines(console, _alone(compared))
    caveats = [*_beside(compared), *_findings(compared)]
    print_caveats(console, caveats if explain else few([*caveats, *caveats_of_kind(cells)]))
    if pairs:
        print_lines(console, _notes(compared) if explain else [HINT])


_SHAREABLE: tuple[TableColumn[Pair], ...] = (
    TableColumn(title="scenario", value=lambda pair: pair.a.scenario, is_number=False),
    TableColumn(title="workload", value=lambda pair: pair.a.workload, is_number=False),
    TableColumn(title="device", value=lambda pair: pair.a.device, is_number=False),
    TableColumn(title="seeds A", value=lambda pair: fmt.seeds(pair.a.seeds) or fmt.NONE, is_number=False),
    TableColumn(title="seeds B", value=lambda pair: fmt.seeds(pair.b.seeds) or fmt.NONE, is_number=False),
    TableColumn(title="comparable", value=lambda pair: "yes" if pair.comparable else "no", is_number=False),
)


def _cells(pairs: Sequence[Pair]) -> list[CellSummary]:
    return [cell for pair in pairs for cell in (pair.a, pair.b)]


def _names(pairs: Sequence[Pair]) -> tuple[list[str], list[TableColumn[Pair]]]:
    """What identifies the cells: what all share, and the columns for the rest."""
    shared = [column for column in _SHAREABLE if len({column.value(pair) for pair in pairs}) == 1]
    columns: list[TableColumn[Pair]] = [
        TableColumn(title="system", value=_system, is_number=False),
        *(column for column in _SHAREABLE if column not in shared),
        TableColumn(
            title="GPUs", value=lambda pair: str(pair.a.gpus) if kind_of(_cells(pairs)) else fmt.gpus_of(pair.a)
        ),
    ]
    told = [column for column in shared if column.title != "comparable"]  # this is in the heading
    return [f"{column.title} {column.value(pairs[0])}" for column in told], columns


def _rates(compared: Compared) -> list[TableColumn[Pair]]:
    columns: list[TableColumn[Pair]] = []
    for unit, write in zip(units.rates(_unit(compared.pairs)), (fmt.steps_per_s, fmt.env_steps_per_s), strict=False):
        columns += _of_sides(unit, write)
    ratios = [pair.ratio for pair in compared.pairs]
    factor = aligned(ratios, fmt.factor)
    if any(fmt.ends(ratio) for ratio in ratios):
        columns.append(TableColumn(title="B / A (95 %)", value=lambda pair: factor(pair.ratio), is_number=False))
        columns.append(TableColumn(title="B is", value=_standing, is_number=False))
    else:
        columns.append(TableColumn(title="B / A", value=lambda pair: factor(pair.ratio)))
    if compared.reference is not None:
        columns += [
            TableColumn(title=f"A / {compared.reference} A", value=lambda pair: _factor(pair.a_to_reference)),
            TableColumn(title=f"B / {compared.reference} B", value=lambda pair: _factor(pair.b_to_reference)),
        ]
    return columns


def _of_sides(unit: str, write: Callable[[CellSummary], str]) -> list[TableColumn[Pair]]:
    return [
        TableColumn(title=f"{unit} A", value=lambda pair: write(pair.a)),
        TableColumn(title=f"{unit} B", value=lambda pair: write(pair.b)),
    ]


def _unit(pairs: Sequence[Pair]) -> units.StepUnit:
    return col.unit_of(_cells(pairs))


def _learning(pairs: Sequence[Pair]) -> list[TableColumn[Pair]]:
    """The columns about learning, if some runs have a learning curve."""
    metric = next((cell.learning.metric for pair in pairs for cell in (pair.a, pair.b) if cell.learning), None)
    if metric is None:
        return []
    return [
        TableColumn(title=f"{metric} A", value=lambda pair: _area(pair.a)),
        TableColumn(title=f"{metric} B", value=lambda pair: _area(pair.b)),
        TableColumn(title="B learns", value=_verdict, is_number=False),
    ]


def _system(pair: Pair) -> str:
    return pair.a.system if pair.a.system == pair.b.system else f"{pair.a.system} (A), {pair.b.system} (B)"


def _standing(pair: Pair) -> str:
    """Whether B is faster, as far as the interval tells."""
    ends = fmt.ends(pair.ratio)
    if ends is None:
        needed = pair.ratio is not None and pair.ratio.needs
        return f"not tested: needs {needed:,} {pair.ratio.units}" if pair.ratio and needed else "not tested"
    return "faster" if ends[0] > 1 else "slower" if ends[1] < 1 else "not significantly different"


def _factor(estimate: Estimate | None) -> str:
    return fmt.factor(fmt.value(estimate))


def _area(cell: CellSummary) -> str:
    return fmt.factor(fmt.value(cell.learning.area)) if cell.learning else fmt.NONE


def _verdict(pair: Pair) -> str:
    return (pair.b.learning.against_reference if pair.b.learning else None) or "unknown"


def _alone(compared: Compared) -> Iterator[str]:
    for letter, side in (("A", compared.a), ("B", compared.b)):
        for cell in side.alone:
            ranks = labels.ranks(cell.gpus, cell.device)
            rate = fmt.rates(cell) if cell.steps_per_s else fmt.steps_per_s(cell)
            yield f"only in {letter}: {cell.system}, {cell.scenario}, {cell.workload}, {ranks}: {rate}"


def _beside(compared: Compared) -> Iterator[str]:
    """Which systems may not be held against the reference, and why."""
    for system, why in {
        pair.a.system: pair.beside_reference for pair in compared.pairs if pair.beside_reference
    }.items():
        yield f"{system} / {compared.reference}: not comparable, because of {'; '.join(why)}"


def _findings(compared: Compared) -> Iterator[str]:
    """What spoils the figures of A, of B, or of both."""
    of_a, of_b = _said(compared.a), _said(compared.b)
    for said in dict.fromkeys([*of_a, *of_b]):
        yield f"{'A and B' if said in of_a and said in of_b else 'A' if said in of_a else 'B'}: {said}"


def _said(side: Side) -> list[str]:
    return [said for _, said in col.findings(side.findings, side.num_runs)]


def _notes(compared: Compared) -> Iterator[str]:
    """Lines that explain the columns."""
    pairs = compared.pairs
    yield units.defined(_unit(pairs))
    if said := col.spread_of(pair.ratio for pair in pairs):
        yield f"95 %: {said}"
    metric = next((cell.learning.metric for pair in pairs for cell in (pair.a, pair.b) if cell.learning), None)
    if metric is not None:
        steps = _unit(pairs)
        yield f"{metric}: mean over the {steps} that both have trained; worse is beyond the 95 % interval of seeds"
    yield from col.kind_notes(_cells(pairs))
