"""Progress of a command whose steps may take long: shown in place in a terminal, else as a line now and then.

Who writes: the thread that works says what it does; a second one shows it, so that the time goes on. What blocks: only
that second thread, and `__exit__` until it has ended.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlbench.harness.live import display, view
from rlbench.harness.live.expected import in_words
from rlbench.harness.live.footer import Footer, can_rewrite

if TYPE_CHECKING:
    from rich.console import Console

LOOK_S = 0.25


class Counted:
    """Shows what is being done, for how long, and how many of so many steps are done; use it as a context."""

    def __init__(self, console: Console, total: int | None = None) -> None:
        """`total`: number of steps; None where it is not known."""
        self._console, self._total = console, total
        self._now, self._done = "", 0
        self._began = time.monotonic()
        self._next_line = self._began + display.PLAIN_PERIOD_S
        self._footer = Footer(console) if can_rewrite(console) else None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def say(self, now: str) -> None:
        """Says what is being done."""
        self._now = view.in_a_line(now)

    def advance(self) -> None:
        """Counts a step."""
        self._done += 1

    def __enter__(self) -> Self:
        if self._footer is not None:
            self._footer.open()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._footer is not None:
            self._footer.close()

    def _run(self) -> None:
        while not self._ends.wait(LOOK_S):
            if self._footer is not None:
                self._footer.show(self._shown(min(self._console.width, view.WIDEST) - 1))
            elif time.monotonic() >= self._next_line:
                said = Text("; ".join(filter(None, (self._now, self._so_far))))
                self._console.print(said, soft_wrap=not self._console.is_terminal)
                self._next_line = time.monotonic() + display.PLAIN_PERIOD_S

    @property
    def _so_far(self) -> str:
        """`3 of 8 done; for 12 s so far`."""
        taken = f"for {in_words(time.monotonic() - self._began)} so far"
        return taken if self._total is None else f"{self._done} of {self._total} done; {taken}"

    def _shown(self, width: int) -> Group:
        now = Text(view.shortened(self._now, width), no_wrap=True)
        if self._total is None:
            return Group(now, Text(self._so_far, no_wrap=True))
        bar_width = max(5, min(view.WIDEST_BAR, width // 4))
        grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
        grid.add_column(no_wrap=True, width=bar_width)
        grid.add_column(no_wrap=True, max_width=max(1, width - bar_width - 2))
        grid.add_row(ProgressBar(total=max(1, self._total), completed=self._done, width=bar_width), Text(self._so_far))
        return Group(now, grid)
