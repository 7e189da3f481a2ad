"""The timelines of a run, from its spans: what each thread of a rank did, and the environments that it acts for.

spans --> threads: their spans, in order
      --> environments of the rank that acts for them, by the ends of their spans; which of them share a worker
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbench.harness.metering.meter_file import SPAN_CAPACITY, env_span_capacity


@dataclass(frozen=True, slots=True)
class Spans:
    """S spans as in `spans.parquet`, times in seconds; those of a thread or an environment in the order of time."""

    rank: NDArray[np.int64]
    environment: NDArray[np.int64]
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    kind: NDArray[np.str_]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Spans:
        """From the rows of the table."""
        return cls(*(np.array([row[name] for row in rows]) for name in cls.__slots__))

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Spans:
        """Some of them, by a mask [S] or by their indices."""
        return Spans(*(getattr(self, name)[chosen] for name in self.__slots__))

    @property
    def lanes(self) -> NDArray[np.int64]:
        """A number for each thread and environment, ascending with rank and environment, [S]."""
        lowest, highest = self.environment.min(initial=0), self.environment.max(initial=0)
        numbers: NDArray[np.int64] = self.rank * (1 + highest - lowest) + self.environment - lowest
        return numbers

    @property
    def kept_since_s(self) -> float:
        """Since when all are there: a rank's file keeps the latest of each thread and environment."""
        _, first, num = np.unique(self.lanes, return_index=True, return_counts=True)
        of_env = min(SPAN_CAPACITY, env_span_capacity(1 + int(self.environment.max(initial=-1))))
        capacity = np.where(self.environment[first] < 0, SPAN_CAPACITY, of_env)
        return float(np.max(self.begin_s[first][num >= capacity], initial=-math.inf))


@dataclass(frozen=True, slots=True)
class Thread:
    """The spans of a rank's thread that last."""

    rank: int
    which: int
    """Its number in the column `environment`."""
    begins: list[float]
    ends: list[float]
    kinds: list[str]

    @classmethod
    def of(cls, spans: Spans, rank: int, which: int) -> Thread:
        """From spans that last."""
        own = spans.where((spans.rank == rank) & (spans.environment == which))
        return cls(rank, which, own.begin_s.tolist(), own.end_s.tolist(), own.kind.tolist())

    def before(self, moment: float) -> tuple[float, float, str]:
        """Begin, end and kind of the last span that has begun before a moment; of `other` since ever if none has."""
        at = bisect_left(self.begins, moment) - 1
        return (self.begins[at], self.ends[at], self.kinds[at]) if at >= 0 else (-math.inf, -math.inf, "other")

    def ends_of_all_but(self, kinds: Sequence[str]) -> list[float]:
        """When spans of other kinds have ended."""
        return [end for end, kind in zip(self.ends, self.kinds, strict=True) if kind not in kinds]


@dataclass(frozen=True, slots=True)
class Envs:
    """The spans that last of all environments that a rank acts for, by their ends."""

    begins: list[float]
    ends: list[float]
    of_env: list[list[int]]
    """The indices of an environment's spans."""
    previous: list[int]
    """The index of the span before it of the same environment; -1 if there is none."""
    workers: list[int]
    of_worker: list[list[int]]
    """The indices of a worker's spans."""
    lanes: list[tuple[int, int]]
    """The rank and the environment of each span."""

    @classmethod
    def of(cls, spans: Spans) -> Envs:
        """From spans that last."""
        spans = spans.where(np.argsort(spans.end_s, kind="stable"))
        envs = np.unique(spans.lanes, return_inverse=True)[1]
        of_env = _indices(envs)
        previous = np.full(len(envs), -1)
        for own in of_env:
            previous[own[1:]] = own[:-1]
        workers = envs // _envs_per_worker(envs, spans)
        columns = spans.begin_s.tolist(), spans.end_s.tolist()
        lanes = list(zip(spans.rank.tolist(), spans.environment.tolist(), strict=True))
        return cls(*columns, of_env, previous.tolist(), workers.tolist(), _indices(workers), lanes)

    def at(self, moment: float) -> list[int]:
        """The index of the last span of each environment that has begun before a moment."""
        last = (bisect_left(own, moment, key=self.begins.__getitem__) - 1 for own in self.of_env)
        return [own[at] for own, at in zip(self.of_env, last, strict=True) if at >= 0]

    def are_stepping(self, moment: float) -> bool:
        """Whether an environment is in the middle of a span."""
        return any(self.ends[span] > moment for span in self.at(moment))

    def last(self, moment: float) -> int:
        """The index of the last span that has ended by a moment; -1 if there is none."""
        return bisect_right(self.ends, moment) - 1

    def before(self, span: int) -> int:
        """The index of the last span of its worker that has ended when this one begins; -1 if there is none."""
        own = self.of_worker[self.workers[span]]
        at = bisect_right(own, self.begins[span], key=self.ends.__getitem__) - 1
        return own[at] if at >= 0 else -1


def _indices(numbers: NDArray[np.intp]) -> list[list[int]]:
    """Where each number from 0 on stands."""
    return [np.flatnonzero(numbers == number).tolist() for number in range(numbers.max(initial=-1) + 1)]


def _envs_per_worker(envs: NDArray[np.intp], spans: Spans) -> int:
    """How many neighbours are stepped in turn: the most whose spans never overlap; `envs` [S] numbers environments."""
    num_envs = len(np.unique(envs))
    for num in range(num_envs, 1, -1):
        if num_envs % num:
            continue
        workers = envs // num
        order = np.lexsort((spans.begin_s, workers))
        overlaps = spans.begin_s[order][1:] < spans.end_s[order][:-1]
        if not (overlaps & (np.diff(workers[order]) == 0)).any():
            return num
    return 1
