"""Collecting while learning: `Alternate` does one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from systems.engine.rank_loop import RankLoop


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternate:
    """Collect a rollout, learn on it, begin again (VER section 2.1); every sample is learned at lag 0."""

    def run(self, loop: RankLoop) -> None:
        """Runs until the budget is spent, as all ranks agree."""
        spent = False
        while not spent:
            loop.collect()
            loop.learn()
            spent = loop.end_iteration()
