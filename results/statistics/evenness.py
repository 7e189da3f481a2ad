"""Whether shares differ from what they should be by more than chance, from consecutive blocks of a run.

The test is Dempster's of a mean vector against zero (A high dimensional two sample significance test, Annals of
Mathematical Statistics 29, 1958), which allows for more environments than blocks: the squared length of the mean
deviation over the blocks, relative to what the blocks' spread about that mean gives it by chance, has an F distribution
whose degrees of freedom follow from traces of their covariance. Blocks of a run depend on their neighbours, so the
spread is multiplied by (1 + r) / (1 - r), which is that of the mean of an AR(1) series with the correlation r of
neighbours, and there are that many fewer of them.

`tests/results/statistics/test_evenness.py` holds how often it calls even shares uneven.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_BLOCKS = 5
"""Fewer say nothing of how they depend on each other."""

ROUNDING = (4 * np.finfo(float).eps) ** 2
"""What shares that never differ may seem to do."""


def p_value(deviations: Floats) -> float:
    """The probability that chance alone makes the mean of deviations [B, E] as large as it is; NaN where unknown.

    Args:
        deviations: of E shares from what they should be, in each of B consecutive blocks; those of a block sum to 0.
    """
    num_blocks, num_shares = deviations.shape
    if num_blocks < LEAST_BLOCKS or num_shares < 2:
        return math.nan
    mean = deviations.mean(0)
    rest = deviations - mean
    between, within = num_blocks * float(mean @ mean), float((rest**2).sum()) / (num_blocks - 1)
    if within <= ROUNDING:
        return 1.0 if between <= ROUNDING else 0.0
    rho = _dependence(rest)
    inflation = (1 + rho) / (1 - rho)
    products = rest @ rest.T / (num_blocks - 1)  # [B, B]: its eigenvalues are those of the covariance, and zeros
    freedom = within**2 / float((products**2).sum())
    from scipy import special

    # The spread is estimated, and so is the correlation: the sum of their relative variances (Satterthwaite).
    of_spread = freedom / (1 / (num_blocks - 1) + 2 * inflation / num_blocks)
    return float(special.fdtrc(freedom, of_spread, between / within / inflation))


def _dependence(rest: Floats) -> float:
    """The correlation of neighbouring blocks, over all shares; its bias is that of a single series."""
    num = len(rest)
    correlation = float((rest[1:] * rest[:-1]).sum() / (rest**2).sum())
    return min(max(0.0, (num * correlation + 1) / (num - 3)), 1 - 4 / num)
