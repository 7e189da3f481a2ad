"""Rows of trials as tables, in Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, median

from benchmarks.power.trials import CELLS, IN_TURN, LOSS, PLANTED, Row


def floors(rows: Sequence[Row]) -> Iterator[str]:
    """By cell: the change that 95 of 100 gates see."""
    seen = {(row["cell"], row["busy"]): _seen(row) for row in rows}
    yield from _table(
        ("cell", "idle machine", "busy neighbour"),
        [(cell, seen.get((cell, False), ""), seen.get((cell, True), "")) for cell in CELLS],
    )


def turns(rows: Sequence[Row]) -> Iterator[str]:
    """By cell: the change that 95 of 100 gates see whose sides run one after the other."""
    seen = {cell: ", ".join(_seen(row) for row in rows if row["cell"] == cell) for cell in IN_TURN}
    yield from _table(("cell", "sides in turn"), list(seen.items()))


def losses(rows: Sequence[Row]) -> Iterator[str]:
    """By what is slower: how many were found, the ratio that was measured, and how long it took."""
    made = []
    for kind, cell in PLANTED:
        of = [row for row in rows if (row["kind"], row["cell"]) == (kind, cell)]
        if of:
            ratio = math.exp(fmean(math.log(row["value"]) for row in of))
            found = sum(row["outcome"] == "regression" for row in of)
            made.append((kind, cell, f"{found} of {len(of)}", f"{ratio:.3f}", f"{_seconds(of)} s"))
    yield from _table(("slower by a", "cell", "found", "mean ratio", "median time"), made)
    found = sum(row["outcome"] == "regression" for row in rows)
    yield ""
    yield f"{found} of {len(rows)} losses of {LOSS:.0%} were found; {_outcomes(rows)}"


def same(rows: Sequence[Row]) -> Iterator[str]:
    """By cell: the outcomes, and how often the interval did not hold 1."""
    made = []
    for cell in CELLS:
        of = [row for row in rows if row["cell"] == cell]
        if of:
            apart = sum(row["low"] is not None and not row["low"] <= 1 <= row["high"] for row in of)
            made.append((cell, f"{len(of)}", _outcomes(of), f"{apart}", f"{_seconds(of)} s"))
    yield from _table(("cell", "gates", "outcomes", "intervals without 1", "median time"), made)
    wrong = sum(row["outcome"] == "regression" for row in rows)
    yield ""
    yield f"{wrong} of {len(rows)} gates of a commit that changes nothing were wrong; {_outcomes(rows)}"


def searches(rows: Sequence[Row]) -> Iterator[str]:
    """Of each search: what it named, and how long it took."""
    made = [
        (
            f"{row['kind']}, {row['cell']}",
            f"{row['planted']}",
            "none" if row["named"] is None else f"{row['named']} ({row['probability']} %)",
            f"{row['seconds'] / 60:.1f} min",
        )
        for row in rows
    ]
    yield from _table(("slower by a", "slow commit", "named", "time"), made)


def _seen(row: Row) -> str:
    return "none" if row["seen"] is None else f"{row['seen']:.1f} %"


def _outcomes(rows: Sequence[Row]) -> str:
    counts = Counter(row["outcome"] for row in rows)
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))


def _seconds(rows: Sequence[Row]) -> str:
    return f"{median(row['seconds'] for row in rows):.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def table(part: str, known: Mapping[str, Row]) -> Iterator[str]:
    """The lines of a part's table; none where none of its trials has a row. `known` has the rows by key."""
    rows = [row for key, row in known.items() if key.startswith(f"{part}/")]
    if rows:
        yield from TABLES[part](rows)


TABLES: dict[str, Callable[[Sequence[Row]], Iterator[str]]] = {
    "floors": floors,
    "turns": turns,
    "losses": losses,
    "same": same,
    "searches": searches,
}
"""By part of the trials (`benchmarks.power.trials.PARTS`)."""
