"""When stragglers among ranks are cut: never, at DD-PPO's threshold, or at the best moment.

`Optimal` (VER section 2.3): each iteration all ranks choose how many steps S to collect together,

    S = argmax S / (Time(S) + LT),  S <= T * N * ranks

LT is the last learning time without waiting for others; Time(S) follows from the mean step time of each environment in
the rollout before. The ranks exchange both before each rollout, and all arrive at the same S. Where they learn while
they collect (`OneAhead`), an iteration takes max(Time(S), LT) instead of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True, slots=True)
class Never:
    """Every rank completes its rollout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Threshold:
    """A rank stops when strictly more than p x ranks have finished and it has `least` x T steps (DD-PPO section 3)."""

    p: float = 0.6
    """Share of the ranks; 1 never preempts."""
    least: float = 0.25
    """Share of T that every rank always collects."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        if not 0 < self.p <= 1:
            raise ValueError(f"preempt.p={self.p}: must be above 0 and at most 1")
        if not 0 <= self.least <= 1:
            raise ValueError(f"preempt.least={self.least}: must be from 0 to 1")


def is_preempted(num_finished: int, num_ranks: int, p: float, num_steps: int, least_steps: int) -> bool:
    """Whether a rank stops collecting: strictly more than p of the ranks have finished, and it has enough itself.

    DD-PPO section 3 and Fig. 9. `num_steps`: steps of each environment that this rank has.
    """
    return num_steps >= least_steps and num_finished > p * num_ranks + 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimal:
    """All ranks stop when they have S steps together, S chosen anew for each rollout (VER section 2.3)."""

    fill_stale: bool = False
    """Whether a preempted rank fills its rollout with steps of its previous ones, the newest first."""


EQUAL_RATES = 1e-12
"""Rates that differ by less, relatively, differ by rounding alone."""


class Plan(NamedTuple):
    """How much all ranks collect in one iteration."""

    num_samples: int
    """S, over all ranks."""
    seconds: float
    """Time(S)."""


def arrivals_s(step_times_s: npt.NDArray[np.float64], num_steps: int, *, whole: bool) -> npt.NDArray[np.float64]:
    """When the steps of one rank's rollout will end, ascending.

    Args:
        step_times_s: mean time of a step of each environment, [N], above 0.
        num_steps: T.
        whole: each environment takes T steps (`Fixed`); else the first T * N steps count (`Variable`).

    Returns:
        Seconds since the rollout began, [T * N].
    """
    total = num_steps * len(step_times_s)
    if whole:
        return np.sort(np.outer(step_times_s, np.arange(1, num_steps + 1)).ravel())
    # By `horizon` the environments have ended at least T * N steps together, even when each count is rounded down.
    horizon = (total + len(step_times_s)) / (1 / step_times_s).sum()
    counts = np.ceil(horizon / step_times_s).astype(np.int64)
    ends = [step * np.arange(1, count + 1) for step, count in zip(step_times_s, counts, strict=True)]
    return np.sort(np.concatenate(ends))[:total]


def plan(
    step_times_s: npt.NDArray[np.float64], learn_s: float, num_steps: int, *, whole: bool, hides_learning: bool = False
) -> Plan:
    """How many steps to collect: argmax S / (Time(S) + LT) (VER section 2.3).

    With `whole` rollouts only S at which some rank completes its rollout are considered: cutting inside a rank would
    drop its slow environments, which is `Variable`'s way and not wanted here.

    Args:
        step_times_s: mean step times of the environments of all ranks, [R, N].
        learn_s: LT.
        num_steps: T.
        whole: see `arrivals_s`.
        hides_learning: ranks learn while they collect, so LT is a floor of Time(S) instead of a cost beside it.
    """
    of_ranks = [arrivals_s(times, num_steps, whole=whole) for times in step_times_s]
    merged = np.sort(np.concatenate(of_ranks))
    samples = np.arange(1, len(merged) + 1)
    if whole:
        completions = np.array([ends[-1] for ends in of_ranks])
        samples = np.unique(np.searchsorted(merged, completions, side="right"))
    times = merged[samples - 1]
    iteration_s = np.maximum(times, learn_s) if hides_learning else times + learn_s
    rates = samples / iteration_s
    best = int(np.flatnonzero(rates >= rates.max() * (1 - EQUAL_RATES))[-1])  # for the same rate, what cuts the least
    return Plan(int(samples[best]), float(times[best]))


def pause_s(elapsed_s: float, planned_s: float) -> float:
    """How long a rank waits before it counts again: an eighth of the time left, 1/256 to 1/16 of the planned time."""
    return min(max((planned_s - elapsed_s) / 8, planned_s / 256), planned_s / 16)


PreemptChoice = Never | Threshold | Optimal
