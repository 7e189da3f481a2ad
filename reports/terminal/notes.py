"""The lines around the table of cells: what all cells share, what spoils their figures, and what the columns mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from rlbench.reports.figures import columns as col
from rlbench.reports.figures.columns import TableColumn
from rlbench.reports.terminal.layout import MARKS
from rlbench.results.records import labels, units
from rlbench.results.summary.document import CellSummary, Summary
from rlbench.results.summary.standings import Standing

MOST_CAVEATS = 6
"""Maximum lines of what spoils figures, unless all are asked for."""
MOST_ASPECTS = 3
"""Maximum number of differences that are named, unless all are asked for."""
MEANINGS: dict[Standing, str] = {
    "fastest": "fastest (95 %)",
    "tied": "no significant difference from the fastest",
    "highest": "highest, not tested",
    "not comparable": "not comparable",
}
"""What the marks say; nothing marks what is slower."""
KINDS = {
    "emulated": "emulated: the figures are of a profile, not of this machine",
    "predicted": "predicted: simulated by a model (not measured)",
}


def heading(summary: Summary, width: int) -> tuple[list[str], list[TableColumn[CellSummary]]]:
    """Lines that say what all cells share, broken between items, and the columns that tell them apart."""
    cells, first = summary.cells, summary.cells[0]
    columns = col.shareable(summary)
    shared = [column for column in columns if len({column.value(cell) for cell in cells}) == 1]
    apart = [column for column in columns if column not in shared]
    items = {column.title: f"{column.title} {column.value(first)}" for column in shared}
    kinds = {(cell.kind, cell.device) for cell in cells}
    gpus: list[TableColumn[CellSummary]] = []
    if len(kinds) == 1 and len({cell.gpus for cell in cells}) == 1:
        items["device"] = labels.ranks(first.gpus, first.device)
    else:
        gpus = [TableColumn(title="GPUs", value=lambda cell: str(cell.gpus))]  # of which device, its column says
    system: TableColumn[CellSummary] = TableColumn(title="system", value=lambda cell: cell.system, is_number=False)
    return [*packed(list(items.values()), width), *kind_of(cells)], [*apart, *gpus, system]


def packed(items: Sequence[str], width: int) -> Iterator[str]:
    """Items with commas between them, as many to a line as fit."""
    line = ""
    for item in items:
        if line and len(line) + len(item) + 3 > width:  # with a comma at its end
            yield f"{line},"
            line = item
        else:
            line += f", {item}" if line else item
    if line:
        yield line


def in_a_row(items: Sequence[str]) -> str:
    """`lag, utilisation and where the time went`."""
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last


def meaning_of_marks(standings: Collection[Standing]) -> str:
    """What the marks in a table say, in one line; empty where there are none."""
    return "; ".join(f"{MARKS[each]} {meaning}" for each, meaning in MEANINGS.items() if each in standings)


def caveats(summary: Summary, *, every: bool) -> list[str]:
    """What spoils the figures, or in a few lines the worst of it; then what could not be read."""
    found = col.findings(summary.findings, len(summary.runs))
    cells = summary.cells
    lines = [said for severity, said in found if severity == "failed"]
    unlike = col.not_comparable(summary)
    lines += unlike if every or len(unlike) < 2 else [_not_comparable(summary)]
    lines += [said for severity, said in found if severity == "warning"]
    lines += [*col.collected(cells), *_without_intervals(cells)]
    lines = lines if every else few([*lines, *caveats_of_kind(cells)])
    return [
        *lines,
        *(said for severity, said in found if severity == "unreadable"),
    ]  # all of them: nothing else says it


def kind_of(cells: Sequence[CellSummary]) -> list[str]:
    """That no figure of a table was measured on hardware; nothing where some were, because then rows say it."""
    kinds = {cell.kind for cell in cells}
    return [KINDS[kind] for kind in kinds if len(kinds) == 1 and kind in KINDS]


def caveats_of_kind(cells: Sequence[CellSummary]) -> Iterator[str]:
    """In short, what `col.kind_notes` explains."""
    if keys := {key for cell in cells for key in cell.assumed}:
        are = "1 key of the profile is" if len(keys) == 1 else f"{len(keys)} keys of the profile are"
        yield f"{are} assumed, not measured"
    kinds = {cell.kind for cell in cells}
    yield from (said for kind, said in KINDS.items() if kind in kinds and len(kinds) > 1)


def few(lines: Sequence[str]) -> list[str]:
    """Caveats, the worst first: at most `MOST_CAVEATS` lines, the last of which says how many more there are."""
    if len(lines) <= MOST_CAVEATS:
        return list(lines)
    return [*lines[: MOST_CAVEATS - 1], f"and {len(lines) - MOST_CAVEATS + 1} more: --explain shows all"]


def _not_comparable(summary: Summary) -> str:
    """In one line that systems differ in more than their choices, and in what."""
    aspects = list(dict.fromkeys(found.aspect for each in summary.fairness for found in each.differences))
    more = f" and {len(aspects) - MOST_ASPECTS} more" if len(aspects) > MOST_ASPECTS else ""
    on = sorted({each.gpus for each in summary.fairness if each.differences})
    return f"{col.on(on)}: not comparable: systems differ in {', '.join(aspects[:MOST_ASPECTS])}{more}"


def _without_intervals(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Which rates have no interval because there are too few runs or iterations."""
    lacking: dict[str, list[int]] = defaultdict(list)
    for cell in cells:
        rate = cell.steps_per_s
        if rate is not None and rate.low is None and rate.needs is not None and rate.num_units:
            lacking[rate.units or "units"].append(rate.needs)
    for unit, needs in lacking.items():
        whose = "" if len(cells) == 1 else f" for {len(needs)} of {len(cells)} rows"
        least = f"{min(needs):,}" if len(set(needs)) == 1 else f"{min(needs):,} to {max(needs):,}"
        yield f"no 95 % interval{whose}: it needs at least {least} {unit}"


def explanations(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Lines that explain the columns and name the sources of figures."""
    finished = [cell for cell in cells if "finished" in cell.statuses]
    yield units.defined(col.unit_of(cells))
    if said := col.spread_of(each for cell in cells for each in (cell.steps_per_s, cell.scaling)):
        yield f"95 %: {said}"
    scaled = [cell for cell in cells if cell.scaling_base_gpus not in {None, cell.gpus}]
    for base in sorted({cell.scaling_base_gpus for cell in scaled if cell.scaling_base_gpus}):
        of = "1 GPU" if base == 1 else f"{base} GPUs"
        yield f"scaling: relative to {of}; efficiency: scaling / {'GPUs' if base == 1 else f'(GPUs / {base})'}"
    sources: dict[str, list[str]] = {}
    for source in dict.fromkeys(cell.utilisation_source for cell in finished):
        kind, colon, meaning = source.partition(": ")
        sources.setdefault(meaning if colon else source, []).append(kind if colon else "")
    if sources:
        each = (f"{', '.join(kinds)}: {meaning}" if kinds != [""] else meaning for meaning, kinds in sources.items())
        yield f"utilisation: {'; '.join(each)}"
    if any(cell.time_shares for cell in cells):
        yield "where the time went: shares of the ranks' time, the largest first"
    lags = [cell.lag_max for cell in cells if cell.lag_max is not None]
    if lags:
        yield "lag: policy versions, mean (max)" if any(lags) else "lag: 0 policy versions in all runs"
    yield from (said for said in col.kind_notes(cells) if said not in set(col.collected(cells)))
