"""Sets of moments: unions of intervals, and how much of an interval they cover. Times are seconds of one clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Moments:
    """A union of intervals [K, 2], which may overlap and come in any order."""

    def __init__(self, intervals: Floats | Sequence[tuple[float, float]] = ()) -> None:
        given = np.asarray(intervals, dtype=np.float64).reshape(-1, 2)
        given = given[given[:, 1] > given[:, 0]]
        given = given[np.argsort(given[:, 0], kind="stable")]
        reach = np.maximum.accumulate(given[:, 1]) if len(given) else given[:, 1]
        first = np.ones(len(given), dtype=np.bool_)
        first[1:] = given[1:, 0] > reach[:-1]
        last = np.append(first[1:], True)[: len(given)]
        self.begins, self.ends = given[first, 0], reach[last]
        lasts = self.ends - self.begins
        self._knots = np.stack((self.begins, self.ends), 1).reshape(-1)
        self._passed = np.stack((lasts.cumsum() - lasts, lasts.cumsum()), 1).reshape(-1)

    @property
    def intervals(self) -> Floats:
        """[K, 2], disjoint and ascending."""
        return np.stack((self.begins, self.ends), 1)

    def covered_s(self, begins: Floats | float, ends: Floats | float) -> Floats:
        """Seconds of the set between each of `begins` and its `ends` [M]; 0 where an interval ends before it begins."""
        if not len(self._knots):
            return np.zeros(np.broadcast_shapes(np.shape(begins), np.shape(ends)))
        begins = np.minimum(begins, ends)
        covered: Floats = np.interp(ends, self._knots, self._passed) - np.interp(begins, self._knots, self._passed)
        return covered

    def left_at(self, moments: Floats) -> Floats:
        """Each of `moments`, or the end of the interval that it is in."""
        at = np.searchsorted(self.begins, moments, side="right")
        left: Floats = np.maximum(moments, np.append(-np.inf, self.ends)[at])
        return left

    def __or__(self, other: Moments) -> Moments:
        return Moments(np.concatenate((self.intervals, other.intervals)))

    def __and__(self, other: Moments) -> Moments:
        knots = np.unique(np.concatenate((self._knots, other._knots)))
        middles = (knots[:-1] + knots[1:]) / 2
        both = self._holds(middles) & other._holds(middles)
        return Moments(np.stack((knots[:-1][both], knots[1:][both]), 1))

    def _holds(self, moments: Floats) -> NDArray[np.bool_]:
        """Whether each of `moments` is in the set."""
        at = np.searchsorted(self.begins, moments, side="right") - 1
        held: NDArray[np.bool_] = (at >= 0) & (moments < np.append(self.ends, -np.inf)[at])
        return held
