"""What people see while a sweep runs: a live display in a terminal, plain lines without one.

The runner passes in how far a cell is (`harness/metering/live.py`); nothing here waits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlbench.harness.metering.live import STARTING, Snapshot
from rlbench.results.records import units

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlbench.harness.plan.cells import Cell

PLAIN_PERIOD_S = 15.0


class CellProgress:
    """Rates and time left of one cell, from snapshots."""

    def __init__(self, cell: Cell, place: str) -> None:
        self.cell = cell
        self.place = place
        self.snapshot = Snapshot(phase=STARTING, iterations=0, learned=0, env_steps=0)
        self._began = time.monotonic()
        self._first: tuple[float, int, int] | None = None

    def update(self, snapshot: Snapshot) -> None:
        """Takes the newest snapshot."""
        self.snapshot = snapshot
        if self._first is None and snapshot.env_steps:
            self._first = (time.monotonic(), snapshot.env_steps, snapshot.joint_steps)

    @property
    def running_s(self) -> float:
        """Seconds since the first env step."""
        return 0.0 if self._first is None else time.monotonic() - self._first[0]

    @property
    def steps_per_s(self) -> float:
        """Samples collected per second so far, of the profile where there is one, as in the table of the sweep."""
        return 0.0 if self._first is None else self._per_s(self.snapshot.env_steps - self._first[1])

    @property
    def rates(self) -> str:
        """`1,234 steps/s`; where environments have several agents, of agent steps and of env steps."""
        joint_steps = 0 if self._first is None else self.snapshot.joint_steps - self._first[2]
        named = zip([self.steps_per_s, self._per_s(joint_steps)], units.rates(_unit(self.snapshot)), strict=False)
        return ", ".join(f"{rate:,.0f} {unit}" for rate, unit in named)

    def _per_s(self, num_steps: int) -> float:
        wall_s_per_s = float(self.cell.scenario_settings.get("time_scale", 1.0))
        return num_steps / self.running_s * wall_s_per_s if self.running_s > 0 else 0.0

    @property
    def fraction(self) -> float:
        """Share of the budget that is spent, 0 to 1; 0 for a budget without limits."""
        limits, now = self.cell.limits, self.snapshot
        spent = [
            now.iterations / limits.iterations if limits.iterations else 0.0,
            self.running_s / limits.seconds if limits.seconds else 0.0,
            now.learned / limits.env_steps if limits.env_steps else 0.0,
        ]
        return min(1.0, max(spent))

    @property
    def time_left(self) -> str:
        """Seconds left as text, estimated from the share of the budget that is spent."""
        if not self.fraction:
            return "time left unknown"
        return f"{self.running_s * (1 - self.fraction) / self.fraction:.0f} s left"

    def line(self) -> str:
        """The progress as one plain line."""
        now = self.snapshot
        rate = f"{self.rates} so far" if now.env_steps else "no step yet"
        return f"{self.place} {self.cell.label}: {now.phase}, iteration {now.iterations}, {rate}, {self.time_left}"


def _unit(now: Snapshot) -> units.StepUnit:
    """What the samples of a cell are."""
    return "agent steps" if now.joint_steps else "env steps"


def _steps(now: Snapshot) -> str:
    """How many were collected."""
    return f"{now.env_steps:,} {_unit(now)}"


class Display:
    """Shows a sweep; use it as a context."""

    def __init__(self, console: Console, num_cells: int) -> None:
        self._console = console
        self._num_cells = num_cells
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._current: CellProgress | None = None
        self._next_line = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self._console.print(Text(line))

    def begin(self, number: int, cell: Cell) -> None:
        """Shows that a cell starts; `number` counts from 1."""
        self._current = CellProgress(cell, f"[{number}/{self._num_cells}]")
        self._next_line = time.monotonic() + PLAIN_PERIOD_S
        if self._live is None:
            self.say(f"{self._current.place} {cell.label}: {STARTING}")

    def update(self, snapshot: Snapshot) -> None:
        """Shows how far the cell is."""
        assert self._current is not None
        self._current.update(snapshot)
        if self._live is not None:
            self._live.update(self._render(self._current))
        elif time.monotonic() >= self._next_line:
            self.say(self._current.line())
            self._next_line = time.monotonic() + PLAIN_PERIOD_S

    def update_jobs(self, running: Mapping[str, Snapshot], num_waiting: int) -> None:
        """Shows how far the running jobs' cells are, by label; `num_waiting` counts the jobs that have not ended."""
        lines = [f"{label}: {now.phase}, iteration {now.iterations}, {_steps(now)}" for label, now in running.items()]
        lines.append(f"{len(running)} running, {num_waiting - len(running)} waiting")
        if self._live is not None:
            self._live.update(Text("\n".join(lines)) if num_waiting else "")
        elif time.monotonic() >= self._next_line:
            for line in lines:
                self.say(line)
            self._next_line = time.monotonic() + PLAIN_PERIOD_S

    def end(self, status: str, detail: str) -> None:
        """Shows that the cell is over."""
        assert self._current is not None
        self.say(f"{self._current.place} {self._current.cell.label}: {status}{detail}")
        if self._live is not None:
            self._live.update("")

    def _render(self, current: CellProgress) -> Group:
        grid = Table.grid(padding=(0, 2))
        now = current.snapshot
        grid.add_row("cell", Text(f"{current.place} {current.cell.label}"))
        grid.add_row("phase", Text(f"{now.phase}, iteration {now.iterations}"))
        grid.add_row("so far", Text(f"{current.rates}, {_steps(now)}"))
        grid.add_row("left", Text(current.time_left))
        return Group(grid, ProgressBar(total=1.0, completed=current.fraction, width=60))
