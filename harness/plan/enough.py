"""Says beforehand that runs are too short for the intervals of their figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rlbench.harness.contract.traits import Traits
from rlbench.harness.metering.window import LEAST_PARTS, PROTOCOLS
from rlbench.harness.plan.cells import Cell
from rlbench.results.records.parts import Part

MOST_LOOKED_AT = 100
"""Runs of more iterations are long enough by every protocol."""


def too_short(cells: Sequence[Cell]) -> str | None:
    """A line if some cells have one seed and so few iterations that too few count for an interval."""
    seeds = Counter(replace(cell, seed=0).to_json() for cell in cells)
    short = [
        (cell, num, counted)
        for cell in cells
        if seeds[replace(cell, seed=0).to_json()] == 1
        and (num := _iterations(cell)) is not None
        and (counted := _most_counted(cell.protocol, num)) < LEAST_PARTS
    ]
    if not short:
        return None
    cell, num, counted = short[0]
    enough = next(many for many in range(1, MOST_LOOKED_AT) if _most_counted(cell.protocol, many) >= LEAST_PARTS)
    which = f"all {len(cells)} cells" if len(short) == len(cells) > 1 else f"{len(short)} of {len(cells)} cells"
    return (
        f"{which} have too few iterations for an interval: {counted} of {num} count "
        f"(--protocol {cell.protocol}); give them {enough}, or several seeds"
    )


def _iterations(cell: Cell) -> int | None:
    """How many iterations a cell's budget has; None if that is not known."""
    limits, found = cell.limits, [] if cell.limits.iterations is None else [cell.limits.iterations]
    if limits.env_steps is not None:
        system, scenario = cell.load()
        told = Traits.of(system).steps_each
        steps = None if told is None else told(scenario)
        if steps:
            found.append(math.ceil(limits.env_steps / (steps * cell.gpus)))
    return min(found, default=None)


def _most_counted(protocol: str, iterations: int) -> int:
    """How many of so many iterations count at most."""
    num = min(iterations, MOST_LOOKED_AT)
    parts = [Part(iteration=number, begin_s=number, end_s=number + 1, learned=1) for number in range(num)]
    dropped, _ = PROTOCOLS[protocol].choose(parts)
    return num - dropped
