"""Where each cell stands among those of the same work on as many GPUs, for tables that mark the best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from rlbench.results.summary.document import CellSummary, Comparison

Standing = Literal["fastest", "tied", "highest", "slower", "untested", "not comparable"]
"""`fastest`: the others are slower at 95 %; `tied`: the fastest, or no significant difference from it; `highest`: of
figures that are not all told apart, because some have no interval, and these are `untested`; `not comparable`: more
differs from the fastest than the systems' own choices."""


def standings(cells: Sequence[CellSummary], comparisons: Iterable[Comparison]) -> dict[str, Standing]:
    """By the cells' ids; those that stand alone, and those without a finished run, have none.

    Args:
        cells: of one or several sweeps.
        comparisons: as a summary has them: the leader of each group is held against all others of it.
    """
    groups: dict[tuple[str, str, str, int], dict[str, CellSummary]] = defaultdict(dict)
    twice = set()
    for cell in cells:
        if cell.steps_per_s is not None:
            key = (cell.sweep, cell.scenario, cell.workload, cell.gpus)
            if cell.system in groups[key]:
                twice.add(key)  # on two devices, or by two protocols
            groups[key][cell.system] = cell
    held: dict[tuple[str, str, str, int], dict[str, dict[str, Comparison]]] = defaultdict(lambda: defaultdict(dict))
    for each in comparisons:
        held[each.sweep, each.scenario, each.workload, each.gpus][each.system][each.against] = each
    found: dict[str, Standing] = {}
    for key, group in groups.items():
        leader = next((name for name, others in held[key].items() if group.keys() - others.keys() == {name}), None)
        if leader is None or key in twice:
            continue
        others = {name: _of(held[key][leader][name]) for name in group if name != leader}
        found |= {group[name].id: standing for name, standing in others.items()}
        found[group[leader].id] = _of_leader(set(others.values()))
    return found


def _of(comparison: Comparison) -> Standing:
    """Where a system stands that the leader is held against."""
    if not comparison.comparable:
        return "not comparable"
    if comparison.ratio.low is None:
        return "untested"
    return "slower" if comparison.ratio.low > 1 else "tied"


def _of_leader(others: set[Standing]) -> Standing:
    if "tied" in others:
        return "tied"
    return "highest" if "untested" in others else "fastest" if "slower" in others else "not comparable"
