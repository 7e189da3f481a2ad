"""Steps/s of two runs at once, side by side in time.

Runs that were measured at once, each on half of a machine, share what slowed the machine down. So each is judged over
the time in which both were in their windows: what slows both then cancels in their ratio. A pair of runs gives one
ratio, not one for each of shorter blocks of its time: where runs exchange cores every second, blocks depend on each
other, and would promise too much.

A window begins and ends where iterations of the run do. Where a run collects while it learns, samples are in flight
then, now more and now fewer: work that is done, and is not in what was learned. So what came to be in flight counts by
the share of the time that is not learning, as if time went into work and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import fmean

import numpy as np
import numpy.typing as npt

from rlbench.results.records.in_flight import read_in_flight
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun

LEAST_SHARE = 0.5
"""Of the shorter window: runs that share less of their time were not measured at once."""

Floats = npt.NDArray[np.float64]


def paired_rates(before: Sequence[StoredRun], after: Sequence[StoredRun]) -> tuple[list[float], list[float]]:
    """Steps/s of finished runs in pairs: over the time that each pair shares if all ran at once, else of each run."""
    at_once = all_at_once(before, after)
    if at_once is not None:
        return at_once
    rates = [[rate for run in each if (rate := run.record.figures.steps_per_s) is not None] for each in (before, after)]
    return rates[0], rates[1]


def all_at_once(before: Sequence[StoredRun], after: Sequence[StoredRun]) -> tuple[list[float], list[float]] | None:
    """The steps/s of both sides of each pair; None unless there are pairs, and all of them ran at once."""
    if not are_pairs([run.record for run in before], [run.record for run in after]):
        return None
    pairs = [rates_at_once(*pair) for pair in zip(before, after, strict=True)]
    found = [pair for pair in pairs if pair is not None]
    return ([one for one, _ in found], [other for _, other in found]) if len(found) == len(pairs) else None


def are_pairs(before: Sequence[RunRecord], after: Sequence[RunRecord]) -> bool:
    """Whether both sides ran the same seeds, once each."""
    seeds = [run.cell.seed for run in before]
    return len(set(seeds)) == len(seeds) and seeds == [run.cell.seed for run in after]


def rates_at_once(one: StoredRun, other: StoredRun) -> tuple[float, float] | None:
    """Steps/s of both over the time that they share, on the runs' clocks; None unless they ran at once.

    Raises ValueError naming a damaged series.
    """
    collecting = _collecting((one, other))
    seen = _seen(one, collecting), _seen(other, collecting)
    if seen[0] is None or seen[1] is None:
        return None
    windows = [(moments[0], moments[-1]) for moments, _ in (seen[0], seen[1])]
    begin, end = max(window[0] for window in windows), min(window[1] for window in windows)
    if end - begin < LEAST_SHARE * min(last - first for first, last in windows):
        return None
    rates = [
        float(np.diff(np.interp((begin, end), *each))[0]) / (end - begin) * run.record.figures.time_scale
        for run, each in ((one, seen[0]), (other, seen[1]))
    ]
    return rates[0], rates[1]


def _seen(run: StoredRun, collecting: float) -> tuple[Floats, Floats] | None:
    """Moments of the window, in seconds since 1970, and the steps done in it up to each; None if unknown."""
    record = run.record
    if record.starting_s is None or not run.parts:
        return None
    zero = datetime.fromisoformat(record.started_at).timestamp() + record.starting_s
    clock = np.array([run.parts[0].begin_s, *(part.end_s for part in run.parts)])
    done = np.cumsum([0.0, *(part.learned for part in run.parts)])
    if collecting and (in_flight := read_in_flight(run.path, record.cell.gpus, clock)) is not None:
        done += collecting * (in_flight - in_flight[0])
    return zero + clock * record.figures.time_scale, done


def _collecting(runs: Sequence[StoredRun]) -> float:
    """The share of the ranks' time that is not learning, the mean of the runs; 0 where nobody knows when they learn."""
    learning = [run.record.figures.time_shares.get("learn") for run in runs]
    known = [share for share in learning if share is not None]
    return 1 - fmean(known) if len(known) == len(learning) else 0.0
