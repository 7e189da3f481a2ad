"""Bookings on an emulated GPU, its cores and its link: functions on its clock, which is an array of moments.

The emulated GPU books for processes that really wait (`emulated_gpu.py`), a prediction books for imaginary ones; both
call these functions. Each lane, link and core serves first come, first served. The clock's words are seconds:

    LANE + 0             when rendering and inference will be done with all that is booked
    LANE + 1             when learning will be
    BUSY_S               how long at least one lane was or will be busy
    COVERED_UNTIL        the moment up to which `BUSY_S` counts
    LINK                 when the network link will be free
    CORES ...            when each core will be free
"""

from __future__ import annotations

import math
from typing import Protocol

LANE, BUSY_S, COVERED_UNTIL, LINK, CORES = 0, 2, 3, 4, 5
"""Indices of the words; LANE has two."""


class Words(Protocol):
    """A clock: a memoryview or an array of doubles."""

    def __getitem__(self, index: int, /) -> float: ...

    def __setitem__(self, index: int, value: float, /) -> None: ...


def end_beside(start: float, took: float, other_free_at: float, factor: float) -> float:
    """The moment at which work ends that is slower by `factor` while the other lane is busy.

    Args:
        start: when the work begins.
        took: seconds on an otherwise idle GPU.
        other_free_at: the moment up to which the other lane is busy.
        factor: at least 1.
    """
    beside = max(0.0, other_free_at - start)
    if took * factor <= beside:
        return start + took * factor
    return start + took + beside * (1 - 1 / factor)


def hold_cores(words: Words, num_cores: int, held: int, start: float) -> float:
    """Takes the cores that are free first; returns when all of them are, or `start` if that is later.

    They are marked by an infinite moment, for `release_cores`.
    """
    for _ in range(held):
        first = CORES
        for core in range(CORES + 1, CORES + num_cores):
            if words[core] < words[first]:
                first = core
        start = max(start, words[first])
        words[first] = math.inf
    return start


def release_cores(words: Words, num_cores: int, end: float) -> None:
    """Says when cores that are held will be free again."""
    for core in range(CORES, CORES + num_cores):
        if words[core] == math.inf:
            words[core] = end


def book(
    words: Words,
    lane: int,
    now: float,
    took: float,
    factor: float,
    other_factor: float,
    num_cores: int = 0,
    held: int = 0,
) -> float:
    """Queues work behind all earlier work of its lane; returns the moment at which it will be done.

    Later bookings on lane 0 may delay learning (lane 1); its end is then the end of its lane.

    Args:
        words: the GPU's clock.
        lane: 0 for rendering and inference, 1 for learning.
        now: the moment at which the work arrives.
        took: seconds on an otherwise idle GPU.
        factor: how much slower work of this lane is while the other lane is busy.
        other_factor: the same for work of the other lane.
        num_cores: cores in the clock.
        held: how many of them the work needs, at the same time, where there is no GPU.
    """
    if took == 0:
        return now  # work that needs no GPU does not wait for one
    start = hold_cores(words, num_cores, held, max(now, words[LANE + lane]))
    other_free_at = words[LANE + 1 - lane]
    end = end_beside(start, took, other_free_at, factor)
    words[LANE + lane] = end
    release_cores(words, num_cores if held else 0, end)
    if lane == 0 and other_free_at > start:
        words[LANE + 1] += (min(end, other_free_at) - start) * (1 - 1 / other_factor)
    busy_until = max(words[LANE], words[LANE + 1])
    words[BUSY_S] += max(0.0, busy_until - max(start, words[COVERED_UNTIL]))
    words[COVERED_UNTIL] = max(words[COVERED_UNTIL], busy_until)
    return end


def book_core(words: Words, num_cores: int, now: float, took: float) -> float:
    """Queues a simulation on the core that is free first; returns the moment at which it will be done."""
    first = CORES
    for core in range(CORES + 1, CORES + num_cores):
        if words[core] < words[first]:
            first = core
    words[first] = max(now, words[first]) + took
    return words[first]


def book_link(words: Words, now: float, took: float) -> float:
    """Queues a message behind all earlier ones on the link; returns the moment at which it has passed."""
    words[LINK] = max(now, words[LINK]) + took
    return words[LINK]
