"""How long the cells of a sweep will take: by the plan, and then by what was seen of the sweep so far."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlbench.harness.plan.cells import Cell

START_S = 8.0
"""Seconds that the processes of a cell take to start and to end, roughly; part of the expected time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """The plan's expectation of one cell."""

    seconds: float
    how: str
    """Where the number is from, as `--dry-run` says it."""
    is_at_most: bool = False
    """Whether only the time limit is known, because nothing says how long the work takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A cell that is running."""

    elapsed_s: float
    left_s: float | None = None
    """By its own progress; None where that tells nothing yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeLeft:
    """What is left of a sweep."""

    seconds: float
    is_at_most: bool = False

    def __str__(self) -> str:
        """`about 4 min 10 s left`."""
        return f"{'at most' if self.is_at_most else 'about'} {in_words(self.seconds)} left"


def expect(cell: Cell, known_s: float | None = None) -> Expected:
    """How long a cell will take; `known_s`: how long it took when it was last run."""
    limit_s, at_most_s = cell.limits.seconds, cell.time_limit_s
    if known_s is not None:
        return Expected(seconds=min(known_s, at_most_s), how="as before")
    if limit_s is None:
        return Expected(seconds=at_most_s, how="at most, by --time-limit", is_at_most=True)
    return Expected(
        seconds=min(limit_s + START_S, at_most_s),
        how=f"about, by its limits; at most {at_most_s:.0f} s, by --time-limit",
    )


def time_left(
    expected: Sequence[Expected],
    took_s: Mapping[int, float],
    ended: Collection[int],
    running: Mapping[int, Running],
    at_once: int = 1,
) -> TimeLeft:
    """What is left of a sweep whose cells run one after the other, or several at a time.

    Cells that are left take what the plan expects of them, times what finished cells took relative to the plan. Where
    the plan knows a limit alone, they take as long as finished cells of that kind did, or as the running one will.

    Args:
        expected: the plan, in the order of the cells.
        took_s: seconds that finished cells took, by their place in the plan. Those of failed cells say nothing.
        ended: places of all cells that have ended, in whatever way.
        running: by place.
        at_once: number of cells that run at a time; each that ends makes room for the next of the plan.
    """
    planned = [place for place in took_s if not expected[place].is_at_most]
    sum_s = sum(expected[place].seconds for place in planned)
    factor = sum(took_s[place] for place in planned) / sum_s if sum_s else 1.0
    seen = [seconds for place, seconds in took_s.items() if expected[place].is_at_most]
    for place, now in running.items():
        if not seen and expected[place].is_at_most and now.left_s is not None:
            seen = [now.elapsed_s + now.left_s]
    of_guessed_s = fmean(seen) if seen else None
    is_at_most = False
    free_in_s = [0.0] * max(1, at_once, len(running))
    """When each place for a cell is free: a heap."""
    for place in itertools.chain(running, (place for place in range(len(expected)) if place not in running)):
        if place in ended:
            continue
        of_plan, cell = expected[place], running.get(place, Running(elapsed_s=0.0))
        left_s = cell.left_s
        if left_s is None:
            whole_s = factor * of_plan.seconds
            if of_plan.is_at_most:
                is_at_most |= of_guessed_s is None
                whole_s = of_plan.seconds if of_guessed_s is None else of_guessed_s
            left_s = max(0.0, whole_s - cell.elapsed_s)
        heapq.heapreplace(free_in_s, free_in_s[0] + left_s)
    return TimeLeft(seconds=max(free_in_s), is_at_most=is_at_most)


def in_words(seconds: float) -> str:
    """`12 s`, `4 min 10 s`, `2 h 05 min`."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {left:02d} s" if minutes else f"{left} s"
