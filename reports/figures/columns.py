"""The columns of a table of cells, for every output format: their titles, and a cell's text in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rlbench.reports.figures import format as fmt
from rlbench.results.fairness.differences import Difference
from rlbench.results.records import units
from rlbench.results.records.units import StepUnit
from rlbench.results.summary.document import CellSummary, Estimate, Finding, Summary
from rlbench.results.verdicts.prediction_check import largest_error
from rlbench.results.verdicts.published_check import HELD_OUT, published_errors

NUM_SHARES = 4

RowT = TypeVar("RowT")
"""The subject of a row of a table, for example a cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumn(Generic[RowT]):
    """A column: its title, the text of a row in it, and whether it holds numbers."""

    title: str
    value: Callable[[RowT], str]
    is_number: bool = True


def shareable(summary: Summary) -> tuple[TableColumn[CellSummary], ...]:
    """The columns, beside system and GPUs, that identify cells; a table says once what all its cells have in common."""
    seeds = _seeds(summary)
    several = any(len(each) > 1 for each in seeds.values())
    return (
        TableColumn(title="scenario", value=lambda cell: cell.scenario, is_number=False),
        TableColumn(title="workload", value=lambda cell: cell.workload, is_number=False),
        TableColumn(title="seeds" if several else "seed", value=lambda cell: fmt.seeds(seeds[cell.id])),
        TableColumn(title="device", value=lambda cell: cell.device, is_number=False),
        TableColumn(title="protocol", value=lambda cell: cell.protocol, is_number=False),
        TableColumn(title="sweep", value=lambda cell: cell.sweep, is_number=False),
    )


def names(summary: Summary) -> tuple[str, list[TableColumn[CellSummary]]]:
    """What identifies the cells: a line of what all have in common, and the columns for the rest."""
    known = shareable(summary)
    shared = [column for column in known if len({column.value(cell) for cell in summary.cells}) == 1]
    columns = [
        TableColumn(title="system", value=lambda cell: cell.system, is_number=False),
        *(column for column in known if column not in shared),
        TableColumn(title="GPUs", value=fmt.gpus_of),
    ]
    return ", ".join(f"{column.title} {column.value(summary.cells[0])}" for column in shared), columns


def _seeds(summary: Summary) -> dict[str, list[int]]:
    """By cell id, the seeds that finished; if none did, those that were tried."""
    tried = {(record.sweep, record.id): record.cell.seed for record in summary.runs}
    return {cell.id: cell.seeds or sorted({tried[cell.sweep, run] for run in cell.runs}) for cell in summary.cells}


def unit_of(cells: Iterable[CellSummary]) -> StepUnit:
    """What the steps of some cells are called in one table."""
    return units.common(cell.unit for cell in cells)


def env_rate(cells: Iterable[CellSummary]) -> list[TableColumn[CellSummary]]:
    """The column of env steps/s that stands beside agent steps/s, if some cell has environments with several agents."""
    return [TableColumn(title=title, value=fmt.env_steps_per_s) for title in units.rates(unit_of(cells))[1:]]


def rates(cells: Sequence[CellSummary]) -> list[TableColumn[CellSummary]]:
    """The columns of the figures that every cell has."""
    return [
        TableColumn(title=units.rate(unit_of(cells)), value=fmt.steps_per_s),
        *env_rate(cells),
        TableColumn(title="scaling", value=lambda cell: fmt.factor(fmt.value(cell.scaling))),
        TableColumn(title="efficiency", value=lambda cell: fmt.percent(fmt.value(cell.efficiency))),
        TableColumn(title="utilisation", value=lambda cell: fmt.percent(cell.utilisation)),
    ]


def shares_and_lag(cells: Sequence[CellSummary]) -> list[TableColumn[CellSummary]]:
    """The columns of time shares and of policy lag, if they are known."""
    columns: list[TableColumn[CellSummary]] = []
    if any(cell.time_shares for cell in cells):
        columns.append(
            TableColumn(
                title="where the time went",
                value=lambda cell: fmt.shares(cell.time_shares, NUM_SHARES),
                is_number=False,
            )
        )
    if any(cell.lag_max for cell in cells):
        columns.append(TableColumn(title="lag", value=fmt.lag))
    return columns


ITERATIONS, SEEDS = "the iterations of the window", "the seeds"
ALONE = "it says nothing of other runs or seeds"


def spread_of(estimates: Iterable[Estimate | None]) -> str:
    """What the intervals of a table come from; empty if it has no intervals."""
    repeated = {estimate.units for estimate in estimates if estimate is not None and fmt.ends(estimate)}
    if not repeated:
        return ""
    if repeated == {"seeds"}:
        return f"interval from the spread of {SEEDS}"
    if repeated == {"iterations"}:
        return f"interval from the spread of {ITERATIONS}; {ALONE}"
    return f"interval from the spread of {SEEDS}, or {ITERATIONS} where there is one run alone; then {ALONE}"


def findings(found: Sequence[Finding], num_runs: int) -> list[tuple[str, str]]:
    """The severity of each finding, and a line that begins with it (with the status, for runs that failed)."""
    return [(finding.severity, _said(finding, num_runs)) for finding in found]


def _said(finding: Finding, num_runs: int) -> str:
    if finding.severity == "failed":  # the text begins with the status
        return finding.text
    of_runs = f" ({len(finding.runs)} of {num_runs} runs)" if finding.severity == "warning" and num_runs > 1 else ""
    return f"{finding.severity}: {finding.text}{of_runs}"


def not_comparable(summary: Summary) -> list[str]:
    """Which systems differ in more than their own choices, and in which aspects: a line for each set of aspects.

    The values are too long for a table; reports and JSON have them.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    several_works = len({(each.sweep, each.scenario, each.workload) for each in summary.fairness}) > 1
    for each in summary.fairness:
        if each.differences:
            work = (each.sweep, each.scenario, each.workload) if several_works else ()
            groups.setdefault((_unlike(each.differences), *work), []).append(each.gpus)
    return [
        ", ".join([*work, on(gpus)]) + f": not comparable: {differences}"
        for (differences, *work), gpus in groups.items()
    ]


def _unlike(differences: Sequence[Difference]) -> str:
    """`appo differs from ddppo, ver in batch, epochs`; without names unless all aspects split them alike, in two."""
    aspects = ", ".join(difference.aspect for difference in differences)
    parts = {frozenset(map(tuple, difference.values.values())) for difference in differences}
    if len(parts) == 1 and len(sides := sorted(next(iter(parts)), key=lambda side: (len(side), side))) == 2:
        few, many = (", ".join(side) for side in sides)
        return f"{few} {'differs' if len(sides[0]) == 1 else 'differ'} from {many} in {aspects}"
    return f"systems differ in {aspects}"


def on(gpus: Sequence[int]) -> str:
    """Several numbers of GPUs in words: `1, 8 GPUs`."""
    return f"{', '.join(map(str, gpus))} {'GPU' if list(gpus) == [1] else 'GPUs'}"


def assumed(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Which figures rest on what their profile assumes: a line for each set of systems."""
    by_key: dict[str, dict[str, None]] = {}
    for cell in cells:
        for key in cell.assumed:
            by_key.setdefault(key, {})[cell.system] = None
    groups: dict[tuple[str, ...], list[str]] = {}
    for key, systems in by_key.items():
        groups.setdefault(tuple(systems), []).append(key)
    everyone = {cell.system for cell in cells}
    for names, keys in groups.items():
        whose = "" if set(names) == everyone else f" ({', '.join(names)})"
        yield f"assumed in the profile, not measured: {', '.join(keys)}{whose}"


def _against_published(profiles: set[str]) -> Iterator[str]:
    """How far these profiles are from published figures: from those that they were fitted to, and from others."""
    tables = published_errors(profiles)
    for table, errors in tables.items():
        far = ", and ".join(f"{100 * each.mean:.1f}% for {each.count} {of}" for of, each in errors.items())
        yield f"predictions were off from published figures ({table}), on average, by {far}"
    if not tables:
        yield "this profile was never held against published figures"


def off_held_out(scenario: str) -> str:
    """How far predictions were from published figures that no profile was fitted to; empty without any.

    They are figures that the scenario's profile predicts or, if there are none, those that others of its table predict.
    """
    own = scenario.partition(":")[0]
    held_out = [each[HELD_OUT] for each in published_errors({own}).values() if HELD_OUT in each]
    errors = [each for each in held_out if own in each.scenarios] or held_out
    num = sum(each.count for each in errors)
    if not num:
        return ""
    mean = sum(each.mean * each.count for each in errors) / num
    of = frozenset[str]().union(*(each.scenarios for each in errors))
    if own in of:
        who = "It" if of == {own} else "It and sister profiles"
    else:
        names = " and ".join(f"`{each.rpartition('/')[2]}`" for each in sorted(of))
        who = f"Its sister profile{'' if len(of) == 1 else 's'} {names}"
    was, whom = ("was", "it was") if len(of) == 1 else ("were", "they were")
    return f"{who} {was} {100 * mean:.0f}% off, on average, from {num} published figures that {whom} not fitted to."


def collected(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Which rates do not count samples learned."""
    if those := sorted({cell.system for cell in cells if cell.steps_counted == "collected"}):
        unit = unit_of(cells)
        yield f"{', '.join(those)}: {units.rate(unit)} are of {unit} collected; what was learned is not reported"


def kind_notes(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Notes on figures that were not measured on hardware, and on rates that do not count samples learned."""
    yield from collected(cells)
    if any(cell.kind == "emulated" for cell in cells):
        yield "emulated: GPUs are emulated from a profile; the figures speak of that profile, not of this machine"
    if predicted := {cell.system.partition(":")[0] for cell in cells if cell.kind == "predicted"}:
        profiles = {cell.scenario.partition(":")[0] for cell in cells if cell.kind == "predicted"}
        error = largest_error(predicted)
        held = (
            "these systems were never held against runs"
            if error is None
            else (
                "against emulated GPUs with the same profile, at most 8, not in batches, it was off by at most "
                f"{100 * error:.1f}%"
            )
        )
        yield f"predicted: simulated by a model of the profile (not measured); {held}"
        yield from _against_published(profiles)
    yield from assumed(cells)
