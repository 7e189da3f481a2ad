"""When stragglers among ranks are cut: `Never`, or DD-PPO's `Threshold`.

Who writes: a rank that has finished a rollout adds 1 to the count of its iteration in the TCPStore. Who reads: the
ranks that still collect, once a step. Nothing blocks but the round trip to the store. Each iteration has a key of its
own, so a rank that is early in the next one cannot see an old count; rank 0 deletes a key when all ranks have moved
past it. If the store's host dies, the call raises, and the rank with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from systems.engine.rollout import Rollout
    from systems.engine.wire.group import Group


def is_preempted(num_finished: int, num_ranks: int, p: float, num_steps: int, least_steps: int) -> bool:
    """Whether a rank stops collecting: strictly more than p of the ranks have finished, and it has enough itself.

    DD-PPO section 3 and Fig. 9. `num_steps`: steps of each environment that this rank has.
    """
    return num_steps >= least_steps and num_finished > p * num_ranks + 1e-9


class Monitor(Protocol):
    """Watches the other ranks during one rank's rollouts."""

    def begin(self, step_times_s: npt.NDArray[np.float64], learn_s: float) -> None:
        """A rollout begins, on all ranks; may wait for them.

        Args:
            step_times_s: mean time to receive a step of each environment in the rollout before, [N]; NaN if unknown.
            learn_s: the last learning time, without waiting for other ranks; 0 before the first.
        """

    def should_stop(self, rollout: Rollout) -> bool:
        """Whether to stop collecting, with what the rollout has."""

    def finished(self, rollout: Rollout) -> None:
        """Says that this rank has ended its rollout."""

    def statistics(self) -> dict[str, float]:
        """What was planned and what came of it, for the time series; of the rollout that has ended."""


class PreemptChoice(Protocol):
    """When stragglers are cut, as a field of a system's spec."""

    def open(self, group: Group, rollout: Rollout, num_steps: int) -> Monitor:
        """Makes the monitor of one rank, for rollouts of T = `num_steps` steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Never:
    """Every rank completes its rollout."""

    def open(self, group: Group, rollout: Rollout, num_steps: int) -> Monitor:  # noqa: ARG002  it needs none of them
        """Makes a monitor that never stops a rollout."""
        return NeverMonitor()


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Threshold:
    """A rank stops when strictly more than p x ranks have finished and it has `least` x T steps (DD-PPO section 3)."""

    p: float = 0.6
    """Share of the ranks; 1 never preempts."""
    least: float = 0.25
    """Share of T that every rank collects in any case."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        if not 0 < self.p <= 1:
            raise ValueError(f"preempt.p={self.p}: must be above 0 and at most 1")
        if not 0 <= self.least <= 1:
            raise ValueError(f"preempt.least={self.least}: must be from 0 to 1")

    def open(self, group: Group, rollout: Rollout, num_steps: int) -> Monitor:  # noqa: ARG002  it asks when asked
        """Makes the monitor of one rank, for rollouts of T = `num_steps` steps."""
        return _ThresholdMonitor(self.p, math.ceil(self.least * num_steps), group)


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


def forget(group: Group, name: str, iteration: int) -> None:
    """Deletes the counter of an iteration that all ranks are past; rank 0 does."""
    if group.rank == 0 and iteration >= 2:
        group.delete(f"{name}/{iteration - 2}")
