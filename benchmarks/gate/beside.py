"""Times one call relative to another that stands for the machine: both in turn, in the same process.

Absolute times depend on the machine, and a slow neighbour comes and goes. Dividing by the time of a reference operation
that never changes, measured a few milliseconds before and after, removes both effects. Times are the thread's CPU
times, so time without a core does not count; none of these calls waits for anything.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time

from rlbench.results.summary.document import Estimate
from rlbench.results.verdicts.paired import ratio_of_pairs

NUM_PAIRS = 12
NUM_LOOKS = 10
"""Looks at each side in a pair. The shortest counts, because what others do to the caches only adds time."""
LOOK_S = 0.0015

Call = Callable[[], object]


def time_beside(call: Call, reference: Call) -> Estimate:
    """Seconds of a call / seconds of the reference, means over `NUM_PAIRS` pairs, with the 95 % interval.

    Garbage collection is off meanwhile, and both are called for a moment before.
    """
    numbers = {each: _number(each) for each in (call, reference)}
    found: dict[Call, list[float]] = {call: [], reference: []}
    was_on = gc.isenabled()
    gc.disable()
    try:
        for _ in range(NUM_PAIRS):
            shortest = dict.fromkeys(found, float("inf"))
            for look in range(NUM_LOOKS):
                for each in (call, reference) if look % 2 == 0 else (reference, call):
                    shortest[each] = min(shortest[each], _seconds(each, numbers[each]))
            for each, seconds in shortest.items():
                found[each].append(seconds)
    finally:
        if was_on:
            gc.enable()
    return ratio_of_pairs(found[call], found[reference])


def _number(call: Call) -> int:
    """How many calls take `LOOK_S`, or up to twice as long."""
    number = 1
    while _seconds(call, number) * number < LOOK_S:
        number *= 2
    return number


def _seconds(call: Call, number: int) -> float:
    """Seconds of one call, mean over `number` calls."""
    began = thread_time()
    for _ in range(number):
        call()
    return (thread_time() - began) / number
