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
    from systems.engine.group import Group


def is_preempted(num_finished: int, num_ranks: int, p: float, num_steps: int, least_steps: int) -> bool:
    """Whether a rank stops collecting: strictly more than p of the ranks have finished, and it has enough itself.

    DD-PPO section 3 and Fig. 9. `num_steps`: steps of each environment that this rank has.
    """
    return num_steps >= least_steps and num_finished > p * num_ranks + 1e-9


class Monitor(Protocol):
    """Watches the other ranks during one rank's rollouts."""

    def should_stop(self, num_steps: int) -> bool:
        """Whether to stop collecting, having `num_steps` steps of each environment."""

    def finished(self) -> None:
        """Says that this rank has ended its rollout; the next call of `should_stop` is about the next one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Never:
    """Every rank completes its rollout."""

    def open(self, group: Group, num_steps: int) -> Monitor:  # noqa: ARG002  it needs neither
        """Makes a monitor that never stops a rollout."""
        return _NeverMonitor()


class _NeverMonitor:
    def should_stop(self, num_steps: int) -> bool:  # noqa: ARG002  the answer is always the same
        return False

    def finished(self) -> None:
        pass


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

    def open(self, group: Group, num_steps: int) -> Monitor:
        """Makes the monitor of one rank, for rollouts of `num_steps` steps."""
        return _ThresholdMonitor(self.p, math.ceil(self.least * num_steps), group)


class _ThresholdMonitor:
    def __init__(self, p: float, least_steps: int, group: Group) -> None:
        self._p, self._least_steps, self._group = p, least_steps, group
        self._iteration = 0

    def should_stop(self, num_steps: int) -> bool:
        if num_steps < self._least_steps or self._p >= 1:
            return False
        finished = self._group.add(f"finished/{self._iteration}", 0)
        return is_preempted(finished, self._group.num_ranks, self._p, num_steps, self._least_steps)

    def finished(self) -> None:
        if self._p < 1:
            self._group.add(f"finished/{self._iteration}", 1)
            if self._group.rank == 0 and self._iteration >= 2:
                self._group.delete(f"finished/{self._iteration - 2}")
        self._iteration += 1
