"""What changed in the course of a run, point by point, as experiment trackers take it (`reports.exports.tracked`).

series.parquet, a row per iteration and rank --> parts of all ranks --> at most 1,000 stretches of time, K
each column --> its sum or mean over the rows that ended in each stretch, [K] --> points
telemetry.parquet, a row every few seconds --> the same, at the steps that had been learned by then
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rlbench.reports.exports.names import name_of
from rlbench.results.reading.tables import SERIES_ROWS, number_columns, read_columns
from rlbench.results.records.parts import SERIES_FILE, Part, read_parts

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Whole = npt.NDArray[np.int64]

Read = TypeVar("Read")
MOST_POINTS = 1000
"""Largest number of points of a name: trackers draw no more, and some take a millisecond for each."""
MOST_COLUMNS = 128
"""Largest number of columns that are read of a table; ours have 50."""
TELEMETRY_FILE = "telemetry.parquet"
NO_STATISTICS = {
    *("rank", "iteration", "begin_s", "end_s", "learned", "reused", "discarded", "collected", "env_steps"),
    *("in_step", "lost", "learned_is_collected"),
}
"""Columns of a series that are counts and times of its rows."""
OF_TIME = {"core_wait_s": "time/core_wait", "gpu_busy_s": "time/gpu_busy"}
"""Columns in seconds, and the names of their shares, beside `span/KIND` and `sampler/KIND`."""
NAMES = {
    "return": "charts/episodic_return",
    "length": "charts/episodic_length",
    "success": "charts/success",
    "spl": "charts/spl",
    **{name: f"losses/{name}" for name in ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "grad_norm")},
    "clip_fraction": "losses/clipfrac",
    "mean_weight": "losses/mean_weight",
}
"""Statistics of a series that have a name of their own here; others are `stats/…`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """What was so at a moment of a run."""

    step: int
    """Samples learned by then, over all ranks."""
    time_s: float
    """When, in seconds since 1970."""
    numbers: Mapping[str, float]
    """By name; all finite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """The run's clock, which is the profile's where GPUs were emulated, and the wall's."""

    zero_s: float
    """When the run's clock was 0, in seconds since 1970."""
    scale: float
    """Seconds on the wall in a second of the run's clock."""

    def wall(self, moment_s: float) -> float:
        """A moment of the run's clock, in seconds since 1970."""
        return self.zero_s + moment_s * self.scale


def read_points(folder: Path, clock: Clock) -> list[Point]:
    """The points of the series and the telemetry of a run folder, by step; those that it has.

    Raises ValueError naming a damaged file.
    """
    return sorted(_points(folder, clock), key=lambda point: (point.step, point.time_s))


def _points(folder: Path, clock: Clock) -> Iterator[Point]:
    stretches = list(_stretches(read_parts(folder)))
    ends = np.array([part.end_s for part in stretches])
    steps = np.cumsum([part.learned for part in stretches], dtype=np.int64)
    if stretches:
        yield from _of_series(folder / SERIES_FILE, stretches, steps, clock)
    path = folder / TELEMETRY_FILE
    if path.exists():
        begin_s = stretches[0].begin_s if stretches else 0.0
        yield from _of_telemetry(path, np.append(begin_s, ends), np.append(0, steps), clock)


def _stretches(parts: Sequence[Part]) -> Iterator[Part]:
    """At most `MOST_POINTS` parts, made of neighbouring ones."""
    cuts = [len(parts) * number // MOST_POINTS for number in range(MOST_POINTS + 1)]
    if len(parts) <= MOST_POINTS:
        cuts = list(range(len(parts) + 1))
    for first, end in pairwise(cuts):
        joined = parts[first:end]
        yield Part(
            iteration=joined[0].iteration,
            begin_s=joined[0].begin_s,
            end_s=joined[-1].end_s,
            learned=sum(part.learned for part in joined),
        )


def _of_series(path: Path, stretches: Sequence[Part], steps: Whole, clock: Clock) -> Iterator[Point]:
    columns = _Columns.of(path, {"begin_s", "end_s"}, np.array([part.end_s for part in stretches]))
    seconds = columns.sums("end_s") - columns.sums("begin_s")  # of all ranks
    seconds[seconds <= 0] = np.nan
    curves = {
        "charts/SPS": np.array([part.rate for part in stretches]),
        "charts/run_seconds": np.array([part.end_s for part in stretches]),
    }
    for name in columns.names:
        head, _, kind = name.partition("/")
        if kind and head in {"span", "sampler"}:
            curves[name_of(f"time/{kind}" if head == "span" else f"time/{name}")] = columns.sums(name) / seconds
        elif name in OF_TIME:
            curves[OF_TIME[name]] = columns.sums(name) / seconds
        elif name == "lag_sum":
            learned = np.array([part.learned for part in stretches], np.float64)
            curves["charts/policy_lag"] = columns.sums(name) / np.where(learned > 0, learned, np.nan)
        elif name not in NO_STATISTICS:
            curves[NAMES.get(name) or name_of(f"stats/{name}")] = columns.means(name)
    yield from _made(curves, steps, [part.end_s for part in stretches], clock)


def _of_telemetry(path: Path, ends: Floats, steps: Whole, clock: Clock) -> Iterator[Point]:
    moments = _column(path, "t")
    moments = moments[np.isfinite(moments)]
    if not len(moments):
        return
    cuts = np.unique(moments)
    if len(cuts) > MOST_POINTS:
        cuts = cuts[np.linspace(0, len(cuts) - 1, MOST_POINTS).round().astype(np.intp)]
    columns = _Columns.of(path, {"t"}, cuts, along="t")
    curves = {name_of(f"telemetry/{name}"): columns.means(name) for name in columns.names if name != "t"}
    yield from _made(curves, np.interp(cuts, ends, steps).astype(np.int64), cuts.tolist(), clock)


def _made(curves: Mapping[str, Floats], steps: Whole, moments: Sequence[float], clock: Clock) -> Iterator[Point]:
    for place, (step, moment) in enumerate(zip(steps.tolist(), moments, strict=True)):
        numbers = {name: float(curve[place]) for name, curve in curves.items() if math.isfinite(curve[place])}
        if numbers:
            yield Point(step=step, time_s=clock.wall(moment), numbers=numbers)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Columns:
    """The columns of a table whose rows belong to K stretches of time; read one at a time, as there may be many."""

    path: Path
    names: Sequence[str]
    of_rows: npt.NDArray[np.intp]
    """Of each row, which stretch it ended in; K where that is after all of them."""
    num: int
    """K."""

    @classmethod
    def of(cls, path: Path, needed: set[str], ends: Floats, *, along: str = "end_s") -> _Columns:
        """The columns of a table; the stretches end at `ends`, [K], and rows at what the column `along` says."""
        names = _told(path, number_columns)
        if missing := sorted(needed - set(names)):
            raise _damaged(path, f"column {missing[0]!r} is missing")
        of_rows = np.searchsorted(ends, _column(path, along), side="left")
        return cls(path=path, names=names[:MOST_COLUMNS], of_rows=of_rows, num=len(ends))

    def sums(self, name: str) -> Floats:
        """The sum over the rows of each stretch, [K]."""
        return self._total(_column(self.path, name))

    def means(self, name: str) -> Floats:
        """The mean over those rows of each stretch that have a value; NaN where none has, [K]."""
        values = _column(self.path, name)
        known = np.isfinite(values)
        num = self._total(known.astype(np.float64))
        means: Floats = self._total(np.where(known, values, 0.0)) / np.where(num > 0, num, np.nan)
        return means

    def _total(self, values: Floats) -> Floats:
        if len(values) != len(self.of_rows):
            raise _damaged(self.path, "has columns of different lengths")
        total = np.bincount(self.of_rows, values, self.num + 1)[: self.num]
        return total.astype(np.float64)


def _column(path: Path, name: str) -> Floats:
    table = _told(path, lambda path: read_columns(path, {name: "float64"}, most_rows=SERIES_ROWS))
    values: Floats = table[name].to_numpy()
    return values


def _told(path: Path, read: Callable[[Path], Read]) -> Read:
    try:
        return read(path)
    except ValueError as problem:
        raise _damaged(path, str(problem)) from None


def _damaged(path: Path, problem: str) -> ValueError:
    return ValueError(f"{path}: cannot be read ({problem}); move its run folder elsewhere or delete it")
