"""Finds out whether times have a second, slow mode: EM fits two normals of equal width to their logarithms.

The widths are equal because a profile has one `sigma`, and because EM can shrink a mode with its own width to one point
(Bishop, Pattern Recognition and Machine Learning, section 9.2.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_SHARE = 0.002
"""Least share of the slow mode: a rarer one is a handful of steps, and changes no rate."""
LEAST_DISTANCE = 3.0
"""Least distance of the modes, in standard deviations: two normals have two peaks from 2 on, and a tail is no mode."""
NUM_POINTS = 2048
"""Number of quantiles that stand for all times, so that EM takes equally long for any run."""
STARTS = (0.5, 0.2, 0.05, 0.01)
"""Shares of the slow mode that EM starts from; the likeliest result counts."""
MOST_ROUNDS = 200
SETTLED = 1e-6
"""EM has converged when the share changes by less than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Modes:
    """Two normals of equal width."""

    fast: float
    slow: float
    """Means of the two modes."""
    sigma: float
    share: float
    """Share of the slow mode."""

    @property
    def distance(self) -> float:
        """Distance of the means, in standard deviations."""
        return (self.slow - self.fast) / self.sigma

    @property
    def are_apart(self) -> bool:
        """Whether they count as two modes."""
        return self.distance >= LEAST_DISTANCE and LEAST_SHARE <= self.share <= 1 - LEAST_SHARE

    @property
    def border(self) -> float:
        """The point that is equally likely to belong to either mode."""
        between = (self.fast + self.slow) / 2
        return between + self.sigma**2 / (self.slow - self.fast) * math.log((1 - self.share) / self.share)


def find_modes(logs: NDArray[np.float64]) -> Modes | None:
    """The two modes of logarithms of times [S]; None where there is only one."""
    if len(logs) < NUM_POINTS // 32 or np.ptp(logs) == 0:
        return None
    points = np.quantile(logs, (np.arange(NUM_POINTS) + 0.5) / NUM_POINTS).astype(np.float64)
    fitted = [found for share in STARTS if (found := _fit(points, share)) is not None]
    if not fitted:
        return None
    likeliest, _ = max(fitted, key=lambda found: found[1])
    return likeliest if likeliest.are_apart else None


def _fit(points: NDArray[np.float64], share: float) -> tuple[Modes, float] | None:
    """Runs EM from a cut at the slowest `share` of points; returns modes and log likelihood, None if one vanishes."""
    of_slow = (np.arange(len(points)) >= len(points) * (1 - share)).astype(np.float64)
    before = -1.0
    for _ in range(MOST_ROUNDS):
        weight = of_slow.mean()
        if not SETTLED < weight < 1 - SETTLED:
            return None
        slow = (of_slow * points).mean() / weight
        fast = ((1 - of_slow) * points).mean() / (1 - weight)
        variance = (of_slow * (points - slow) ** 2 + (1 - of_slow) * (points - fast) ** 2).mean()
        if variance <= 0 or slow <= fast:
            break  # two exact times, or no order
        odds = math.log(weight / (1 - weight)) + (slow - fast) * (points - (slow + fast) / 2) / variance
        of_slow = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        if abs(weight - before) < SETTLED:
            break
        before = weight
    if slow <= fast:
        return None
    variance = max(variance, 1e-12)
    densities = weight * np.exp(-((points - slow) ** 2) / (2 * variance))
    densities += (1 - weight) * np.exp(-((points - fast) ** 2) / (2 * variance))
    likelihood = float(np.log(np.maximum(densities, 1e-300)).sum()) - len(points) / 2 * math.log(variance)
    return Modes(fast=float(fast), slow=float(slow), sigma=math.sqrt(variance), share=float(weight)), likelihood
