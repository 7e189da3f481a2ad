"""Second moments of gossip on a quadratic, exactly: slow transcriptions, and the bound of the dissertation's Theorem 1.

Letters: p ranks, c the curvature of one dimension. The state is linear in itself and in the noise, so E z z^T follows
z -> A z + v xi over all pairs (rank that steps, rank that it pulls from), each as likely as any other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def theorem_1(p: int, alpha: float, m: float, big_l: float, variance: float, start: float, num_steps: int) -> Array:
    """Right side of eq. 3.6 for t = 0 .. num_steps; `start` is the sum over ranks of squared distances at t = 0."""
    rate = 1 - 2 * alpha / p * m * big_l / (m + big_l)
    floor = p * alpha * variance * (m + big_l) / (2 * m * big_l)
    return np.power(rate, np.arange(num_steps + 1, dtype=np.float64)) * start + floor


def _event(order: str, p: int, i: int, j: int, alpha: float, beta: float, c: float) -> tuple[Array, Array]:
    """(A, v) when rank i steps and pulls from j. The state is theta_1 .. theta_p, then what each rank shows."""
    a, v = np.eye(2 * p), np.zeros(2 * p)
    theta, others = np.eye(2 * p)[i], np.eye(2 * p)[p + j]
    if order == "algorithm 5":  # theta <- average with theta_j, then the gradient there; all show what they have
        mixed = (1 - beta) * theta + beta * np.eye(2 * p)[j]
        a[i], v[i] = (1 - alpha * c) * mixed, -alpha
        a[p + i], v[p + i] = a[i], v[i]
    elif order == "fresh":  # eq. 3.65 to 3.67
        a[p + i], v[p + i] = (1 - alpha * c) * theta, -alpha
        a[i], v[i] = (1 - beta) * a[p + i] + beta * others, (1 - beta) * v[p + i]
    else:  # stale: eq. 3.62
        a[p + i] = theta
        a[i], v[i] = (1 - beta) * theta + beta * others - alpha * c * theta, -alpha
    return a, v


def exact(
    order: str, p: int, alpha: float, beta: float, curvature: list[float], variance: float, num_steps: int
) -> Array:
    """E sum_i |theta_i|^2 for t = 0 .. num_steps, all ranks starting at 1 in every dimension.

    `variance` is that of the gradient's noise over all dimensions together, which share it evenly.
    """
    total = np.zeros(num_steps + 1)
    for c in curvature:
        events = [_event(order, p, i, j, alpha, beta, c) for i in range(p) for j in range(p) if i != j]
        moments = np.ones((2 * p, 2 * p))
        for t in range(num_steps + 1):
            total[t] += np.trace(moments[:p, :p])
            noise = variance / len(curvature)
            moments = sum((a @ moments @ a.T + noise * np.outer(v, v) for a, v in events), np.zeros(())) / len(events)
    return total
