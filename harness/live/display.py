"""What people see while a sweep runs: two bars in a terminal, plain lines without one.

The runner passes in how far a cell is (`harness/metering/live.py`); nothing here waits. `state` is what others read of
it, in a thread (`harness/live/live_file.py`): one reference, which is replaced whole.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from rich.text import Text

from rlbench.harness.live import view
from rlbench.harness.live.cell_progress import CellProgress
from rlbench.harness.live.expected import Expected, Running, TimeLeft, time_left
from rlbench.harness.live.footer import Footer, can_rewrite
from rlbench.harness.live.state import MOST_RUNNING, LiveSweep, RunningCell
from rlbench.harness.metering.live import PREPARING, Snapshot

if TYPE_CHECKING:
    from rich.console import Console

    from rlbench.harness.plan.cells import Cell

PLAIN_PERIOD_S = 15.0
LEFT_PERIOD_S = 1.0
"""The time left is told anew once in so many seconds: a sweep may have 100,000 cells."""
FINISHED = "finished"


class Display:
    """Shows a sweep; use it as a context."""

    def __init__(
        self, console: Console, num_cells: int, expected: Sequence[Expected] = (), finished: Collection[int] = ()
    ) -> None:
        """Begins with nothing to show.

        Args:
            console: where to show it.
            num_cells: of the sweep.
            expected: how long each cell will take; without it, no time is shown.
            finished: places in the plan, from 0, of cells that earlier runs of the sweep have finished.
        """
        self._console = console
        self._expected = expected
        self._footer = Footer(console) if can_rewrite(console) else None
        self._current: CellProgress | None = None
        self._jobs: dict[int, CellProgress] = {}
        self._took_s: dict[int, float] = {}
        self._ended, self._failed = set(finished), set[int]()
        self._left: TimeLeft | None = None
        self._at_once = 0
        """Most jobs that have run at a time."""
        self._next_line = self._next_left = 0.0
        self.state = LiveSweep.begins(num_cells, len(finished))

    def __enter__(self) -> Self:
        if self._footer is not None:
            self._footer.open()
        return self

    def __exit__(self, *_: object) -> None:
        if self._footer is not None:
            self._footer.close()

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        if self._footer is not None:
            self._footer.print(line)
        else:  # a pipe gets whole lines, a dumb terminal would break words
            self._console.print(Text(line), soft_wrap=not self._console.is_terminal)

    def begin(self, number: int, cell: Cell) -> None:
        """Shows that a cell starts; `number` is its place in the sweep, from 1."""
        self._current = CellProgress(cell, number)
        self._next_line = time.monotonic() + PLAIN_PERIOD_S
        if self._footer is None:
            self.say(f"{self._place} {cell.label}: {PREPARING}")
        self._show()

    def step(self, name: str) -> None:
        """Shows what is done for the cell before its ranks start, or after they have ended."""
        assert self._current is not None
        self._current.snapshot = Snapshot(phase=name, iterations=0, learned=0, env_steps=0)
        self._show()

    def update(self, snapshot: Snapshot) -> None:
        """Shows how far the cell is."""
        assert self._current is not None
        self._current.update(snapshot)
        self._show()

    def update_jobs(self, running: Mapping[int, tuple[Cell, Snapshot]], num_waiting: int) -> None:
        """Shows how far the running jobs' cells are, by number; `num_waiting` counts the jobs that have not ended."""
        for number, (cell, now) in running.items():
            known = self._jobs.get(number)
            if known is None or now.env_steps < known.snapshot.env_steps:  # the job was requeued
                known = self._jobs[number] = CellProgress(cell, number)
            known.update(now)
        states = [self._jobs[number].state for number in running]
        self._tell(states, num_waiting=num_waiting - len(running))
        self._print_or_show(
            [*(view.line(state, self.state.num_cells) for state in states), view.about_sweep(self.state)]
        )

    def end(self, status: str, detail: str) -> None:
        """Shows that the cell is over."""
        assert self._current is not None
        current, self._current = self._current, None
        self.note_end(current.number, status, current.elapsed_s)
        self._tell([])
        self.say(f"{view.place(current.number, self.state.num_cells)} {current.cell.label}: {status}{detail}")
        if self._footer is not None:
            self._footer.show("")

    def note_end(self, number: int, status: str, took_s: float | None = None) -> None:
        """Counts a cell that has ended."""
        place = number - 1
        self._ended.add(place)
        self._next_left = 0.0
        if status != FINISHED:
            self._failed.add(place)
        elif took_s is not None:
            self._took_s[place] = took_s

    @property
    def _place(self) -> str:
        assert self._current is not None
        return view.place(self._current.number, self.state.num_cells)

    def _show(self) -> None:
        assert self._current is not None
        self._tell([self._current.state])
        line = view.line(self.state.running[0], self.state.num_cells)
        self._print_or_show([line if self.state.num_cells == 1 else f"{line}; sweep: {view.about_sweep(self.state)}"])

    def _print_or_show(self, lines: Sequence[str]) -> None:
        if self._footer is not None:
            self._footer.show(view.view(self.state, self._console.width))
        elif time.monotonic() >= self._next_line:
            for line in lines:
                self.say(line)
            self._next_line = time.monotonic() + PLAIN_PERIOD_S

    def _tell(self, running: Sequence[RunningCell], num_waiting: int | None = None) -> None:
        """Makes `state` anew."""
        self._at_once = max(self._at_once, len(running))
        at_once = 1 if num_waiting is None else self._at_once  # how many jobs Slurm runs at a time shows when they run
        if self._expected and at_once and time.monotonic() >= self._next_left:
            now = {cell.number - 1: Running(elapsed_s=cell.elapsed_s, left_s=cell.left_s) for cell in running}
            self._left = time_left(self._expected, self._took_s, self._ended, now, at_once)
            self._next_left = time.monotonic() + LEFT_PERIOD_S
        left = self._left
        self.state = LiveSweep(
            writer=self.state.writer,
            num_cells=self.state.num_cells,
            num_ended=len(self._ended),
            num_failed=len(self._failed),
            running=tuple(running[:MOST_RUNNING]),
            num_running=len(running),
            num_waiting=num_waiting,
            left_s=left.seconds if left else None,
            left_is_at_most=bool(left and left.is_at_most),
        )
