"""Steps/s of two runs at once, side by side in time.

Runs that were measured at once, each on half of a machine, share what slowed the machine down. So each is judged over
blocks of the time in which both were in their windows: what slows both in a block cancels in the block's ratio. Blocks
are several times as long as an iteration and as the seconds after which the two exchange their cores
(`harness/commands/gate/halves.py`), so one says little of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt

from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun

BLOCK_S = 10.0
LEAST_SHARE = 0.5
"""Of the shorter window: runs that share less of their time were not measured at once."""

Floats = npt.NDArray[np.float64]


def paired_rates(before: Sequence[StoredRun], after: Sequence[StoredRun]) -> tuple[list[float], list[float]]:
    """Steps/s of finished runs in pairs: in blocks of time if all pairs ran at once, else a number for each run."""
    blocks = blocks_of(before, after)
    if blocks is not None:
        return blocks
    rates = [[rate for run in each if (rate := run.record.figures.steps_per_s) is not None] for each in (before, after)]
    return rates[0], rates[1]


def blocks_of(before: Sequence[StoredRun], after: Sequence[StoredRun]) -> tuple[list[float], list[float]] | None:
    """The steps/s of both sides in blocks of time; None unless there are pairs, and all of them ran at once."""
    if not are_pairs([run.record for run in before], [run.record for run in after]):
        return None
    blocks: tuple[list[float], list[float]] = ([], [])
    for pair in zip(before, after, strict=True):
        rates = rates_at_once(*pair)
        if rates is None:
            return None
        for side, of_pair in zip(blocks, rates, strict=True):
            side.extend(of_pair)
    return blocks


def are_pairs(before: Sequence[RunRecord], after: Sequence[RunRecord]) -> bool:
    """Whether both sides ran the same seeds, once each."""
    seeds = [run.cell.seed for run in before]
    return len(set(seeds)) == len(seeds) and seeds == [run.cell.seed for run in after]


def rates_at_once(one: StoredRun, other: StoredRun) -> tuple[list[float], list[float]] | None:
    """Steps/s of both in each block, on the runs' clocks; None unless they ran at once."""
    seen = _seen(one), _seen(other)
    if seen[0] is None or seen[1] is None:
        return None
    windows = [(moments[0], moments[-1]) for moments, _ in (seen[0], seen[1])]
    begin, end = max(window[0] for window in windows), min(window[1] for window in windows)
    if end - begin < LEAST_SHARE * min(last - first for first, last in windows):
        return None
    cuts = np.linspace(begin, end, 1 + max(1, round((end - begin) / BLOCK_S)))
    rates = [
        np.diff(np.interp(cuts, *each)) / np.diff(cuts) * run.record.figures.time_scale
        for run, each in ((one, seen[0]), (other, seen[1]))
    ]
    return rates[0].tolist(), rates[1].tolist()


def _seen(run: StoredRun) -> tuple[Floats, Floats] | None:
    """Moments of the window, in seconds since 1970, and the steps learned in the window up to each; None if unknown."""
    record = run.record
    if record.starting_s is None or not run.parts:
        return None
    zero = datetime.fromisoformat(record.started_at).timestamp() + record.starting_s
    clock = np.array([run.parts[0].begin_s, *(part.end_s for part in run.parts)])
    return zero + clock * record.figures.time_scale, np.cumsum([0.0, *(part.learned for part in run.parts)])
