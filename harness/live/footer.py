"""The last lines of a terminal, which are written anew in place; what else is printed appears above them.

They are rich's live display. What it lacks: when a terminal becomes narrower it breaks the lines that it shows, so that
they take more rows than were written. `Footer` erases those rows too; else they would stay there, torn.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPED_WIDTH = 160


def progress_console(file: TextIO | None = None) -> Console:
    """The console for progress and warnings: stderr, so that results alone are on stdout; or `file` in its place."""
    file = file or sys.stderr
    is_terminal = file.isatty()
    return Console(file=file, highlight=False, force_terminal=is_terminal, width=None if is_terminal else PIPED_WIDTH)


def can_rewrite(console: Console) -> bool:
    """Whether lines can be written anew in place: a file, a pipe and a dumb terminal only take more lines."""
    return console.is_terminal and not console.is_dumb_terminal


def rows_added(widths: Sequence[int], width: int) -> int:
    """Rows that lines of these widths take in a terminal of `width` columns, beyond one for each."""
    return sum(math.ceil(each / width) - 1 for each in widths if each)


class Footer:
    """The lines; use it as a context, at whose end they go."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: RenderableType = ""
        self._widths: list[int] = []
        """Of the lines that are in the terminal."""
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def open(self) -> None:
        """Begins; nothing is shown yet."""
        self._live.start()

    def close(self) -> None:
        """Removes the lines."""
        self._settle()
        self._live.stop()

    def show(self, shown: RenderableType) -> None:
        """Shows this in place of what was shown."""
        self._settle()
        self._shown = shown
        self._live.update(shown, refresh=True)
        self._measure()

    def print(self, text: str) -> None:
        """Prints a line above, which stays; broken between words."""
        self._settle()
        self._console.print(Text(text))
        self._measure()

    def _measure(self) -> None:
        lines = self._console.render_lines(self._shown, pad=False)
        self._widths = [Segment.get_line_length(line) for line in lines]

    def _settle(self) -> None:
        """Erases the rows by which the terminal has broken lines since they were written."""
        if (added := rows_added(self._widths, max(1, self._console.width))) > 0:
            step = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(Control(ControlType.CARRIAGE_RETURN, *(step * added)))
        self._widths = []
