"""`Continuous` overlap: collecting and learning never wait for each other's phases (Sample Factory section 3.1).

A second thread collects all the time; the main thread learns from the batches that it leaves (`trajectories.py` says
who blocks where). Newest weights act from the next inference on. When the run is over, the main thread stops the
stream, wakes the sampler and waits for its end. When there is no batch and the time is up, all ranks stop: where they
wait for each other to learn, they agree on that before (in runs that have such a limit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from systems.engine.rank.rank_loop import RankLoop


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuous:
    """Neither collecting nor learning ever stops; samples that became too old are discarded."""

    max_lag: int = 20
    """Most optimiser steps between acting and learning; the paper ran at 5 to 10 on average (Sample Factory A.3)."""

    ahead: ClassVar[int] = 0
    is_concurrent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks the field."""
        if self.max_lag < 1:
            raise ValueError(f"overlap.max_lag={self.max_lag}: must be at least 1; for 0 there is overlap=alternate")

    def run(self, loop: RankLoop) -> None:
        """Runs until the budget is spent, as all ranks agree."""
        stream = loop.stream
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
            stream.stop()
            loop.wake()
        loop.wait_for(collecting)
