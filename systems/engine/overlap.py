"""Collecting while learning: `Alternate` does one after the other, `OneAhead` both at once, one rollout apart.

Under `OneAhead` a second thread collects. It alone touches sampler, workers and the rollout that is being filled; the
main thread learns from the one before, and takes the new one when both have ended. `background.py` says what happens
when either raises. A rollout that any rank has broken off for lack of time, no rank learns from: they agree on that in
the barrier after collecting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from systems.engine.rank.rank_loop import RankLoop


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternate:
    """Collect a rollout, learn on it, begin again (VER section 2.1)."""

    ahead: ClassVar[int] = 0
    """Rollouts that are held beside the one that is filled."""
    is_concurrent: ClassVar[bool] = False
    """Whether learning and collecting go on at the same time."""

    def run(self, loop: RankLoop) -> None:
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

    def run(self, loop: RankLoop) -> None:
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
