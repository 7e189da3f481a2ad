"""Watching the other ranks during a rollout: what `systems.choices.preempt` decides, over the run's TCPStore.

Threshold: a rank that has finished a rollout adds 1 to the count of its iteration. The ranks that still collect read
the count, once a step. Only the round trip to the store blocks.

Optimal: a rank that collects adds its finished steps to the count of the iteration, and gets the sum over all ranks in
the same round trip, the more often the closer the planned end is. That round trip blocks; the exchange of times before
a rollout blocks until all ranks take part. The other ranks free it, or their death, which raises. When S is all steps
of all rollouts, no rank counts.

Each iteration has its own key, so a rank that is early in the next one cannot see an old count; rank 0 deletes a key
when all ranks have moved past it. If the store's host dies, the call raises, which ends the rank.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rlbench.systems.choices.preempt import Never, Optimal, Plan, Threshold, is_preempted, pause_s, plan
from rlbench.systems.engine.rollouts.rollout import FixedRollout

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.systems.choices.preempt import PreemptChoice
    from rlbench.systems.engine.rollouts.rollout import Rollout
    from rlbench.systems.engine.wire.group import Group


class Monitor(Protocol):
    """Watches the other ranks during one rank's rollouts."""

    def begin(self, step_times_s: npt.NDArray[np.float64], learn_s: float) -> None:
        """Begins a rollout, on all ranks; may wait for them.

        Args:
            step_times_s: mean time to receive a step of each environment in the rollout before, [N]; NaN if unknown.
            learn_s: the last learning time, without waiting for other ranks; 0 before the first.
        """

    def should_stop(self, rollout: Rollout) -> bool:
        """Whether to stop collecting, with what the rollout has."""

    def finished(self, rollout: Rollout) -> None:
        """Says that this rank has ended its rollout."""

    def statistics(self) -> dict[str, float]:
        """What was planned for the rollout that has ended, and what came of it, for the time series."""


def open_monitor(
    choice: PreemptChoice, group: Group, rollout: Rollout, num_steps: int, *, hides_learning: bool = False
) -> Monitor:
    """Makes the monitor of one rank, for rollouts of T = `num_steps` steps; `hides_learning` is that of `plan`."""
    match choice:
        case Never():
            return NeverMonitor()
        case Threshold():
            return _ThresholdMonitor(choice.p, math.ceil(choice.least * num_steps), group)
        case Optimal():
            whole = isinstance(rollout, FixedRollout)
            return _OptimalMonitor(group, rollout.num_envs, num_steps, whole=whole, hides_learning=hides_learning)


class NeverMonitor:
    """Lets every rollout become full."""

    def begin(self, step_times_s: npt.NDArray[np.float64], learn_s: float) -> None:
        """Nothing to do."""

    def should_stop(self, rollout: Rollout) -> bool:  # noqa: ARG002  the answer is always the same
        """Never."""
        return False

    def finished(self, rollout: Rollout) -> None:
        """Nothing to do."""

    def statistics(self) -> dict[str, float]:
        """There are none."""
        return {}


class _ThresholdMonitor(NeverMonitor):
    def __init__(self, p: float, least_steps: int, group: Group) -> None:
        self._p, self._least_steps, self._group = p, least_steps, group
        self._iteration = 0

    def should_stop(self, rollout: Rollout) -> bool:
        num_steps = rollout.num_steps
        if num_steps < self._least_steps or self._p >= 1:
            return False
        finished = self._group.add(f"finished/{self._iteration}", 0)
        return is_preempted(finished, self._group.num_ranks, self._p, num_steps, self._least_steps)

    def finished(self, rollout: Rollout) -> None:  # noqa: ARG002  full or cut, it is finished
        if self._p < 1:
            self._group.add(f"finished/{self._iteration}", 1)
            forget(self._group, "finished", self._iteration)
        self._iteration += 1


class _OptimalMonitor(NeverMonitor):
    def __init__(self, group: Group, num_envs: int, num_steps: int, *, whole: bool, hides_learning: bool) -> None:
        self._group, self._num_steps = group, num_steps
        self._whole, self._hides_learning = whole, hides_learning
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
            # An environment that has ended no step counts as slow as the slowest that has: nothing else is known of it.
            slowest = float(np.nanmax(times))
            self._plan = plan(
                np.where(np.isfinite(times), times, slowest),
                learning,
                self._num_steps,
                whole=self._whole,
                hides_learning=self._hides_learning,
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
        # Steps that end after a rollout is full are counted with the next one, to which they belong.
        new = min(rollout.num_places, self._all // self._group.num_ranks) - self._reported
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


def forget(group: Group, name: str, iteration: int) -> None:
    """Deletes, on rank 0, the counter of the iteration two before `iteration`, which all ranks are past."""
    if group.rank == 0 and iteration >= 2:
        group.delete(f"{name}/{iteration - 2}")
