"""The columns of the table of cells: all that fit the width, in the best of a few layouts; rows in their order.

Where there is no room for the names, those that the rows of a work have in common stand above these.

Rows of the same work on as many GPUs stand together, the fastest first: they are what a reader chooses between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len

from rlbench.reports.figures import columns as col
from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import RowT, TableColumn
from rlbench.results.records import units
from rlbench.results.summary.document import CellSummary, Estimate
from rlbench.results.summary.standings import Standing

MARKS: dict[Standing, str] = {"fastest": "*", "tied": "~", "highest": "?", "not comparable": "!"}
"""Signs beside the rate; they survive pipes and terminals without colours. Others have none."""
GAP = 3
"""Width of what stands between two columns."""
NAME = 24
"""Width from which a name is folded rather than that a figure is left out."""
OF_WORK = frozenset({"scenario", "workload", "device", "protocol", "sweep"})
"""Titles of names that may stand above rows."""
Columns = list[TableColumn[CellSummary]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What a table shows."""

    columns: Columns
    left_out: list[str]
    """What it has no room for, in words."""
    above: Columns = field(default_factory=list)
    """Names that stand above the rows which have them in common."""

    def blocks(self, cells: Sequence[CellSummary]) -> Iterator[tuple[list[str], list[CellSummary]]]:
        """What stands above rows, and these; all in one block where nothing does."""
        blocks: dict[tuple[str, ...], list[CellSummary]] = {}
        for cell in cells:
            blocks.setdefault(tuple(f"{name.title} {name.value(cell)}" for name in self.above), []).append(cell)
        yield from ((list(said), rows) for said, rows in blocks.items())


def group(cell: CellSummary) -> tuple[str, str, str, int]:
    """What rows that stand together have in common."""
    return (cell.sweep, cell.scenario, cell.workload, cell.gpus)


def in_order(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """By work, in the order of the cells, then GPUs, then steps/s, the fastest first; without a rate last."""
    works = {work: place for place, work in enumerate(dict.fromkeys(group(cell)[:3] for cell in cells))}
    return sorted(cells, key=lambda cell: (works[group(cell)[:3]], cell.gpus, -(fmt.value(cell.steps_per_s) or 0.0)))


def fitting(names: Columns, cells: Sequence[CellSummary], standings: Mapping[str, Standing], width: int) -> Layout:
    """The richest layout that fits."""
    above = [name for name in names if name.title in OF_WORK]
    beside = [name for name in names if name not in above]
    layouts = [
        Layout(columns=[*those, *columns], left_out=left_out, above=others)
        for those, others in ((names, []), (beside, above))
        for columns, left_out in _layouts(cells, standings)
    ]
    return next((each for each in layouts if sum_of(widths(each.columns, cells)) <= width), layouts[-1])


def widths(columns: Sequence[TableColumn[RowT]], rows: Sequence[RowT]) -> list[int]:
    """How wide columns are at least."""
    found = []
    for column in columns:
        longest = max(cell_len(column.value(row)) for row in rows)
        title = max(map(cell_len, column.title.split("\n")))
        found.append(max(title, min(longest, NAME) if column.title == "system" else longest))
    return found


def sum_of(found: Sequence[int]) -> int:
    """The width of a table whose columns are so wide."""
    return sum(found) + GAP * (len(found) - 1)


def _layouts(cells: Sequence[CellSummary], standings: Mapping[str, Standing]) -> Iterator[tuple[Columns, list[str]]]:
    """Columns, the richest first, each with what it lacks of the first."""
    rates = [_rate(cells, standings), *col.env_rate(cells)]
    used, lag, went = _utilisation(cells), _lag(cells), any(cell.time_shares for cell in cells)
    whole, plain, joined = _scaling(cells)
    lost = ["the intervals of scaling"] if whole != plain else []
    for scaling, missing in ((whole, []), (plain, lost), (joined, lost)):
        for num_shares in (3, 2) if went else (0,):
            yield [*rates, *scaling, *used, *_went(num_shares), *lag], missing
    if went:
        yield [*rates, *joined, *used, *_went(1), *lag], lost
    if lag:
        lost = [*lost, "lag"]
        for num_shares in (2, 1) if went else (0,):
            yield [*rates, *joined, *used, *_went(num_shares)], lost
    if went:
        lost = [*lost, "where the time went"]
        yield [*rates, *joined, *used], lost
    if used:
        lost = [*lost, "utilisation"]
        yield [*rates, *joined], lost
    if joined:
        yield rates, [*(each for each in lost if "scaling" not in each), "scaling", "efficiency"]


def _rate(cells: Sequence[CellSummary], standings: Mapping[str, Standing]) -> TableColumn[CellSummary]:
    """The rate, its interval, and the mark of the best; if no run finished, how they ended."""
    finished = [cell for cell in cells if cell.steps_per_s is not None]
    estimate = aligned([cell.steps_per_s for cell in finished], fmt.number)

    def write(cell: CellSummary) -> str:
        if cell.steps_per_s is None:
            return fmt.steps_per_s(cell)
        mark = MARKS.get(standings[cell.id], "") if cell.id in standings else ""
        return f"{estimate(cell.steps_per_s)} {mark:1}" if standings else estimate(cell.steps_per_s)

    title = units.rate(col.unit_of(cells))
    has_interval = any(fmt.ends(cell.steps_per_s) for cell in finished)
    return TableColumn(title=f"{title} (95 %)" if has_interval else title, value=write, is_number=not has_interval)


def _scaling(cells: Sequence[CellSummary]) -> tuple[Columns, Columns, Columns]:
    """Scaling and efficiency with intervals, without, and in one column; none if all cells are on the fewest GPUs."""
    if all(cell.scaling_base_gpus in {None, cell.gpus} for cell in cells):
        return [], [], []
    scaling = [cell.scaling for cell in cells if cell.scaling is not None]
    plain: TableColumn[CellSummary] = TableColumn(title="scaling", value=_factor)
    efficiency: TableColumn[CellSummary] = TableColumn(title="efficiency", value=_efficiency)
    whole = plain
    if any(map(fmt.ends, scaling)):
        write = aligned(scaling, fmt.factor)
        whole = TableColumn(
            title="scaling (95 %)",
            value=lambda cell: write(cell.scaling),
            is_number=False,
        )
    joined: TableColumn[CellSummary] = TableColumn(
        title="scaling,\nefficiency", value=lambda cell: f"{_factor(cell)}, {_efficiency(cell):>4}"
    )
    return [whole, efficiency], [plain, efficiency], [joined]


def _factor(cell: CellSummary) -> str:
    return fmt.factor(fmt.value(cell.scaling))


def _efficiency(cell: CellSummary) -> str:
    return fmt.percent(fmt.value(cell.efficiency))


def aligned(estimates: Sequence[Estimate | None], write: Callable[[float], str]) -> Callable[[Estimate | None], str]:
    """What writes figures as `969 (704 to 1,333)`, so that a column's figures end, and its intervals begin, alike."""
    most = max((len(write(each.value)) for each in estimates if each is not None), default=0)
    longest = max((len(fmt.interval(ends, write)) + 2 for each in estimates if (ends := fmt.ends(each))), default=0)

    def written(estimate: Estimate | None) -> str:
        ends = fmt.ends(estimate)
        said = f"{fmt.NONE if estimate is None else write(estimate.value):>{most}}"
        between = f"({fmt.interval(ends, write)})" if ends else ""
        return f"{said} {between:<{longest}}" if longest else said

    return written


def _utilisation(cells: Sequence[CellSummary]) -> Columns:
    if all(cell.utilisation is None for cell in cells):
        return []
    return [TableColumn(title="utilisation", value=lambda cell: fmt.percent(cell.utilisation))]


def _went(num_shares: int) -> Columns:
    if not num_shares:
        return []
    return [
        TableColumn(
            title="where the time went",
            value=lambda cell: fmt.shares(cell.time_shares, num_shares),
            is_number=False,
        )
    ]


def _lag(cells: Sequence[CellSummary]) -> Columns:
    return [TableColumn(title="lag", value=fmt.lag)] if any(cell.lag_max for cell in cells) else []
