"""Rates and time left of the running cell, from snapshots of its meters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rlbench.harness.live.state import RunningCell
from rlbench.harness.metering.live import PREPARING, Snapshot

if TYPE_CHECKING:
    from rlbench.harness.plan.cells import Cell


class CellProgress:
    """Rates and time left of one cell, from snapshots."""

    def __init__(self, cell: Cell, number: int) -> None:
        """`number`: the cell's place in the sweep, from 1."""
        self.cell, self.number = cell, number
        self.snapshot = Snapshot(phase=PREPARING, iterations=0, learned=0, env_steps=0)
        self._began = time.monotonic()
        self._first: tuple[float, int, int] | None = None

    def update(self, snapshot: Snapshot) -> None:
        """Takes the newest snapshot."""
        self.snapshot = snapshot
        if self._first is None and snapshot.env_steps:
            self._first = (time.monotonic(), snapshot.env_steps, snapshot.joint_steps)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the cell began."""
        return time.monotonic() - self._began

    @property
    def state(self) -> RunningCell:
        """How far the cell is now; rates and time left count from its first env step."""
        now = self.snapshot
        began, *before = self._first or (time.monotonic(), now.env_steps, now.joint_steps)
        running_s = time.monotonic() - began
        fraction = self._fraction(running_s)
        rates = [
            self._per_s(done - then, running_s)
            for done, then in zip((now.env_steps, now.joint_steps), before, strict=True)
        ]
        return RunningCell(
            number=self.number,
            label=self.cell.label,
            phase=now.phase,
            iterations=now.iterations,
            env_steps=now.env_steps,
            joint_steps=now.joint_steps,
            steps_per_s=rates[0],
            joint_steps_per_s=rates[1],
            fraction=fraction,
            elapsed_s=self.elapsed_s,
            left_s=running_s * (1 - fraction) / fraction if fraction else None,
        )

    def _per_s(self, num_steps: int, running_s: float) -> float:
        """A rate so far, of the profile where there is one, as in the table of the sweep."""
        wall_s_per_s = float(self.cell.scenario_settings.get("time_scale", 1.0))
        return num_steps / running_s * wall_s_per_s if running_s > 0 else 0.0

    def _fraction(self, running_s: float) -> float:
        """Share of the budget that is spent, 0 to 1; 0 for a budget without limits."""
        limits, now = self.cell.limits, self.snapshot
        spent = [
            now.iterations / limits.iterations if limits.iterations else 0.0,
            running_s / limits.seconds if limits.seconds else 0.0,
            now.learned / limits.env_steps if limits.env_steps else 0.0,
        ]
        return min(1.0, max(spent))
