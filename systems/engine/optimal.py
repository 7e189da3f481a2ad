"""`Optimal` preemption: each iteration all ranks choose how many steps S to collect together (VER section 2.3).

    S = argmax S / (Time(S) + LT),  S <= T * N * ranks

LT is the last learning time without waiting for others; Time(S) follows from the mean time of a step of each
environment in the rollout before. The ranks exchange these before a rollout begins, and all come to the same S.

Who writes: a rank that collects adds its finished steps to the count of the iteration in the TCPStore, and learns the
sum of all in the same round trip, the more often the closer the planned end is. Who reads: the same. What blocks: that
round trip, and the exchange, for all ranks; what frees it: the other ranks, or their death, which raises. Every
iteration has a key of its own, so a rank that is early in the next one cannot see an old count. When S is all there is,
nobody counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from systems.engine.preempt import NeverMonitor, forget
from systems.engine.rollout import FixedRollout

if TYPE_CHECKING:
    import numpy.typing as npt

    from systems.engine.preempt import Monitor
    from systems.engine.rollout import Rollout
    from systems.engine.wire.group import Group


class Plan(NamedTuple):
    """What all ranks do in one iteration."""

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
    # By `horizon` all environments together have ended at least T * N steps, rounding down included.
    horizon = (total + len(step_times_s)) / (1 / step_times_s).sum()
    counts = np.ceil(horizon / step_times_s).astype(np.int64)
    ends = [step * np.arange(1, count + 1) for step, count in zip(step_times_s, counts, strict=True)]
    return np.sort(np.concatenate(ends))[:total]


def plan(step_times_s: npt.NDArray[np.float64], learn_s: float, num_steps: int, *, whole: bool) -> Plan:
    """How many steps to collect: argmax S / (Time(S) + LT) (VER section 2.3).

    With `whole` rollouts only S at which some rank completes its rollout are considered: cutting inside a rank would
    drop its slow environments, which is what `Variable` does, and not what is asked here.

    Args:
        step_times_s: of the environments of all ranks, [R, N].
        learn_s: LT.
        num_steps: T.
        whole: see `arrivals_s`.
    """
    of_ranks = [arrivals_s(times, num_steps, whole=whole) for times in step_times_s]
    merged = np.sort(np.concatenate(of_ranks))
    samples = np.arange(1, len(merged) + 1)
    if whole:
        completions = np.array([ends[-1] for ends in of_ranks])
        samples = np.unique(np.searchsorted(merged, completions, side="right"))
    times = merged[samples - 1]
    best = int(np.argmax(samples / (times + learn_s)))
    return Plan(int(samples[best]), float(times[best]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimal:
    """All ranks stop when they have S steps together, S chosen anew for each rollout (VER section 2.3)."""

    fill_stale: bool = False
    """Whether a preempted rank fills its rollout with steps of its previous ones, the newest first."""

    def open(self, group: Group, rollout: Rollout, num_steps: int) -> Monitor:
        """Makes the monitor of one rank, for rollouts of T = `num_steps` steps."""
        return _OptimalMonitor(group, rollout.num_envs, num_steps, whole=isinstance(rollout, FixedRollout))


def pause_s(elapsed_s: float, planned_s: float) -> float:
    """How long a rank waits until it counts again: an eighth of what is left, 1/16 to 1/256 of the planned time."""
    return min(max((planned_s - elapsed_s) / 8, planned_s / 256), planned_s / 16)


class _OptimalMonitor(NeverMonitor):
    def __init__(self, group: Group, num_envs: int, num_steps: int, *, whole: bool) -> None:
        self._group, self._num_steps, self._whole = group, num_steps, whole
        self._all = num_steps * num_envs * group.num_ranks
        self._plan = Plan(self._all, float("nan"))
        self._iteration = -1
        self._reported = self._total = 0
        self._began = self._ended = self._counts_at = 0.0

    def begin(self, step_times_s: npt.NDArray[np.float64], learn_s: float) -> None:
        self._iteration += 1
        forget(self._group, "steps", self._iteration)
        known = self._group.gather(np.append(step_times_s, learn_s))
        times, learning = known[:, :-1], float(known[:, -1].max())
        if np.isfinite(times).any() and learning > 0:
            # An environment that has not ended a step is as slow as the slowest that has: nothing else is known of it.
            slowest = float(np.nanmax(times))
            self._plan = plan(
                np.where(np.isfinite(times), times, slowest), learning, self._num_steps, whole=self._whole
            )
        else:
            self._plan = Plan(self._all, float("nan"))
        self._reported = self._total = 0
        self._began = self._counts_at = time.perf_counter()

    def should_stop(self, rollout: Rollout) -> bool:
        now = time.perf_counter()
        if self._plan.num_samples >= self._all or now < self._counts_at:
            return False
        self._report(rollout)
        self._counts_at = now + pause_s(now - self._began, self._plan.seconds)
        return self._total >= self._plan.num_samples and has_enough(rollout)

    def _report(self, rollout: Rollout) -> None:
        # What ends after a rollout is full is counted with the next one, to which it belongs.
        new = min(rollout.num_samples, self._all // self._group.num_ranks) - self._reported
        self._total = self._group.add(f"steps/{self._iteration}", new)
        self._reported += new

    def finished(self, rollout: Rollout) -> None:
        self._ended = time.perf_counter()
        if self._plan.num_samples < self._all:
            self._report(rollout)

    def statistics(self) -> dict[str, float]:
        total = self._all
        if self._plan.num_samples < self._all:
            total = self._group.add(f"steps/{self._iteration}", 0)  # by now all ranks have reported
        return {
            "preempt/planned_steps": self._plan.num_samples,
            "preempt/planned_s": self._plan.seconds,
            "preempt/steps": total,
            "preempt/collect_s": self._ended - self._began,
        }


def has_enough(rollout: Rollout) -> bool:
    """Whether a rollout can be learned from: each environment has a step, or there is one for each on average."""
    return rollout.num_steps >= 1
