"""Runs two sides in turn, A B B A, so that a drift of the machine hits both alike, and compares their medians."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

Side = Callable[[], float]
"""Measures one side once: env steps per second."""


@dataclass(frozen=True, slots=True)
class Compared:
    """All figures of both sides, in the order in which they were measured; env steps per second."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of ours / median of theirs."""
        return median(self.ours) / median(self.theirs)

    def lines(self, our_name: str, their_name: str) -> Iterator[str]:
        """The lines to print."""
        for name, figures in ((our_name, self.ours), (their_name, self.theirs)):
            shown = ", ".join(f"{figure:,.0f}" for figure in figures)
            yield f"{name}: median {median(figures):,.0f} env steps/s ({shown})"
        yield f"ratio of the medians, {our_name} / {their_name}: {self.ratio:.2f}"


def compare(ours: Side, theirs: Side, num_rounds: int) -> Compared:
    """Measures each side twice a round: ours, theirs, theirs, ours."""
    figures: dict[Side, list[float]] = {ours: [], theirs: []}
    for _ in range(num_rounds):
        for side in (ours, theirs, theirs, ours):
            figures[side].append(side())
    return Compared(tuple(figures[ours]), tuple(figures[theirs]))
