"""Collecting while learning: one after the other, one rollout apart, or neither ever waiting for the other.

Under `OneAhead` a second thread collects. It alone touches the sampler, the workers and the rollout that is being
filled. The main thread learns from the rollout before, and takes the new one when both threads are done.
`systems/engine/workers/background.py` says what happens when either raises. When a rank breaks off its rollout for lack
of time, no rank learns from that rollout: the ranks agree on this in the barrier after collecting.

Under `Continuous` a second thread collects all the time, and the main thread learns from the batches that it leaves
(`systems/engine/rollouts/trajectories.py` says who blocks where). New weights act from the next inference on. When the
run is over, the main thread stops the stream, wakes the sampler and waits for it to end. When time is up and there is
no batch, all ranks stop. Ranks that wait for each other to learn agree on that first, in runs that have such a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop(Protocol):
    """What one rank can do; an overlap puts these acts in order. `systems/engine/rank/rank_loop.py` does them."""

    @property
    def has_deadline(self) -> bool:
        """Whether rollouts are broken off when there is no time left."""

    def plan(self) -> None:
        """Agrees with the other ranks on how much to collect."""

    def collect(self) -> None:
        """Fills the rollout, or stops early when the other ranks wait for this one."""

    def collect_ahead(self) -> None:
        """Collects; until the next call, the sampler then counts as waiting for the learner."""

    def take(self) -> Any:
        """Returns what was collected, and begins the next rollout."""

    def take_batch(self, max_lag: int) -> Any | None:
        """Waits for the next batch of the stream and returns it; None when the stream was stopped."""

    def take_newest_weights(self) -> None:
        """Gives the sampler the newest weights to act with."""

    def wait_for_ranks(self) -> bool:
        """Waits for the slowest rank, where ranks wait at all; returns whether any of them broke off its rollout."""

    def break_off(self) -> None:
        """Ends the run without the iteration that is under way."""

    def learn(self, experience: Any) -> None:
        """Learns on what `take` or `take_batch` gave."""

    def end_iteration(self) -> bool:
        """Agrees with the other ranks on how far the run is; returns whether it is over."""

    def in_background(self, work: Callable[[], None]) -> Any:
        """Runs `work` in a second thread, the one that samples."""

    def wait_for(self, collecting: Any) -> None:
        """Waits until the thread that samples has ended; raises what it raised."""

    def stop_stream(self) -> None:
        """Stops collecting: wakes the thread that samples, which then ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternate:
    """Collect a rollout, learn on it, begin again (VER section 2.1)."""

    ahead: ClassVar[int] = 0
    """Number of rollouts that are held beside the one being filled."""
    is_concurrent: ClassVar[bool] = False
    """Whether learning and collecting go on at the same time."""

    def run(self, loop: Loop) -> None:
        """Runs until the budget is spent, as all ranks agree."""
        spent = False
        while not spent:
            loop.plan()
            loop.collect()
            experience = loop.take()
            if loop.wait_for_ranks():
                loop.break_off()
                break
            loop.learn(experience)
            spent = loop.end_iteration()


@dataclass(frozen=True, kw_only=True, slots=True)
class OneAhead:
    """Learn on one rollout while the next is collected, with the weights from before (HTS-RL; VER sections 2.1, 7)."""

    ahead: ClassVar[int] = 1
    is_concurrent: ClassVar[bool] = True

    def run(self, loop: Loop) -> None:
        """Runs until the budget is spent, as all ranks agree."""
        loop.plan()
        loop.collect_ahead()
        spent = loop.has_deadline and loop.wait_for_ranks()
        if spent:
            loop.break_off()
        while not spent:
            experience = loop.take()
            loop.take_newest_weights()
            loop.plan()
            collecting = loop.in_background(loop.collect_ahead)
            loop.learn(experience)
            loop.wait_for(collecting)
            broke_off = loop.wait_for_ranks()
            spent = loop.end_iteration() or broke_off


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuous:
    """Neither collecting nor learning ever stops; samples that have become too old are discarded."""

    max_lag: int = 20
    """Most optimiser steps between acting and learning; the paper ran at 5 to 10 on average (Sample Factory A.3)."""

    ahead: ClassVar[int] = 0
    is_concurrent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks the field."""
        if self.max_lag < 1:
            raise ValueError(f"overlap.max_lag={self.max_lag}: must be at least 1; for 0 there is overlap=alternate")

    def run(self, loop: Loop) -> None:
        """Runs until the budget is spent, as all ranks agree."""
        collecting = loop.in_background(loop.collect)
        try:
            spent = False
            while not spent:
                experience = loop.take_batch(self.max_lag)
                if loop.has_deadline and loop.wait_for_ranks():
                    loop.break_off()
                    break
                if experience is None:  # the thread that collects has failed
                    break
                loop.learn(experience)
                spent = loop.end_iteration()
        finally:
            loop.stop_stream()
        loop.wait_for(collecting)


OverlapChoice = Alternate | OneAhead | Continuous
