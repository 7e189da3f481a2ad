"""What `rlbench watch` does: shows a sweep that another process runs, from its folder alone, until it ends.

It writes nothing but its own output, and holds nothing; Ctrl-C ends it and leaves the sweep alone.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rlbench.harness.commands.resuming import resume_command
from rlbench.harness.live import view
from rlbench.harness.live.display import PLAIN_PERIOD_S
from rlbench.harness.live.expected import in_words
from rlbench.harness.live.footer import Footer, can_rewrite, progress_console
from rlbench.harness.live.state import LIVE_FILE
from rlbench.harness.run.sweep_state import SweepReader, SweepState, newest
from rlbench.reports.figures import format as fmt
from rlbench.reports.terminal.table import make_console, make_table, print_lines, print_table
from rlbench.results.reading.untrusted import visible

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from rlbench.harness.run.sweep import Sweep

LOOK_S = 1.0
OVER, GONE = 0, 1
LINES_BESIDE = 10
"""Lines of a terminal that are not for the table of the cells that have ended."""


def watch_sweep(folder: Path) -> int:
    """Shows the newest sweep in a folder, or the one whose folder it is, and then its table; returns the exit code.

    That is 1 where the runner is gone without an end. Raises ValueError where there is no sweep.
    """
    reader = SweepReader(newest(folder))
    console = progress_console()
    console.print(Text(f"watching {visible(str(reader.folder))}; Ctrl-C ends this, and leaves the sweep alone"))
    try:
        state = _until_it_ends(reader, console)
    except KeyboardInterrupt:
        return OVER
    if state.runs or state.unreadable:
        console.print()
        _print_runs(state)
    sys.stdout.flush()
    console.print(Text(_how_it_ended(state, reader.sweep)), soft_wrap=True)
    return GONE if state.phase == "gone" else OVER


def _until_it_ends(reader: SweepReader, console: Console) -> SweepState:
    footer = Footer(console) if can_rewrite(console) else None
    lines = _Lines(console)
    if footer is not None:
        footer.open()
    try:
        while not (state := reader.look()).has_ended:
            if footer is not None:
                footer.show(_shown(state, console))
            else:
                lines.say(state)
            time.sleep(LOOK_S)
        if footer is None:
            lines.say_ended(state)
        return state
    finally:
        if footer is not None:
            footer.close()


class _Lines:
    """Says in lines what has happened, where nothing can be shown in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = set[str]()
        self._next_s = 0.0

    def say(self, state: SweepState) -> None:
        """Says which cells have ended since the last call and, now and then, how far the others are."""
        self.say_ended(state)
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + PLAIN_PERIOD_S
        live = state.live
        if live is not None:
            for cell in live.running:
                self._say(view.line(cell, live.num_cells))
            self._say(f"sweep: {view.about_sweep(live)}")
        if remark := _remark(state):
            self._say(remark)

    def say_ended(self, state: SweepState) -> None:
        """Says which cells have ended since the last call."""
        for cell in state.ended:
            if cell.run.record.id not in self._said:
                self._said.add(cell.run.record.id)
                where = view.place(cell.number, len(state.labels))
                record = cell.run.record
                self._say(f"{where} {view.in_a_line(cell.label)}: {record.status}{view.told_of(record)}")

    def _say(self, line: str) -> None:
        self._console.print(Text(visible(line)), soft_wrap=not self._console.is_terminal)


def _shown(state: SweepState, console: Console) -> RenderableType:
    """The cells that have ended, as many as there is room for, above the bars that the runner shows."""
    width = min(console.width, view.WIDEST) - 1
    parts: list[RenderableType] = []
    room = max(0, console.height - LINES_BESIDE)
    if shown := state.ended[len(state.ended) - min(room, len(state.ended)) :]:
        if (hidden := len(state.ended) - len(shown)) > 0:
            parts.append(Text(f"{hidden} earlier, and:"))
        parts += [_table(state, len(shown), width), Text()]
    if state.live is not None:
        parts.append(view.view(state.live, console.width))
    if remark := _remark(state):
        parts.append(Text(view.shortened(remark, width), style="yellow", no_wrap=True))
    return Group(*parts)


def _table(state: SweepState, num_cells: int, width: int) -> Table:
    table = make_table()
    beside = 36
    for column, is_number in (("", False), ("cell", False), ("status", False), ("steps/s", True)):
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    for cell in state.ended[-num_cells:]:
        record = cell.run.record
        label = view.shortened(view.in_a_line(cell.label), max(8, width - beside))
        rate = fmt.number(record.figures.steps_per_s)
        table.add_row(view.place(cell.number, len(state.labels)), Text(label), record.status, rate)
    return table


def _remark(state: SweepState) -> str:
    """What must be known beside how far the sweep is."""
    if state.live is None:
        return f"it is not known how far the sweep is: {LIVE_FILE} cannot be read"
    if state.phase == "quiet":
        writer = state.live.writer
        there = "is there" if writer.lives else f"is on {view.in_a_line(writer.host)}, and cannot be seen from here"
        return f"no news for {in_words(state.quiet_s)}; process {writer.pid} {there}"
    return ""


def _print_runs(state: SweepState) -> None:
    from rlbench.results.summary.summarise import summarise

    console = make_console()
    print_table(summarise(list(state.runs), unreadable=list(state.unreadable)), console)
    print_lines(console, [f"runs: {state.folder}"])


def _how_it_ended(state: SweepState, sweep: Sweep) -> str:
    of = f"{state.num_finished} of {len(state.labels)} cells finished"
    if state.phase == "gone":
        writer = state.live.writer if state.live is not None else None
        if writer is None:
            how = f"{LIVE_FILE} cannot be read, and has not changed for {in_words(state.quiet_s)}"
        elif writer.lives is None:
            host = visible(view.in_a_line(writer.host))
            how = f"no news for {in_words(state.quiet_s)} from process {writer.pid} on {host}, which may be gone"
        else:
            how = f"process {writer.pid}, which ran the sweep, is gone"
        if sweep.command[1:2] == ("predict",):  # which is quicker made anew
            return f"{how}; {of}"
        return f"{how}; {of}; `{resume_command(sweep, sweep.folder.parent)}` goes on"
    return f"the sweep is over: {of}"
