"""How far a sweep is, as a terminal shows it and as plain lines say it; the runner and `rlbench watch` show the same.

No line is as wide as the terminal, so none wraps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlbench.harness.live.expected import TimeLeft, in_words
from rlbench.results.records import units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from rlbench.harness.live.state import LiveSweep, RunningCell
    from rlbench.results.records.schema import RunRecord

WIDEST, WIDEST_BAR = 80, 30
"""Columns that are used at most, of all and of a bar: a terminal that becomes narrower breaks lines that no longer fit,
and most are never narrower than that."""
INDENT = 7
MOST_SHOWN = 5
"""Running cells that are shown, at most."""


def view(sweep: LiveSweep, width: int) -> Group:
    """The sweep's bar above that of each running cell; for a terminal of `width` columns."""
    width = min(width, WIDEST) - 1
    shown = [_bar("sweep", min(1.0, _done(sweep)), about_sweep(sweep), width)]
    for cell in sweep.running[:MOST_SHOWN]:
        now = "; ".join([f"{place(cell.number, sweep.num_cells)} {doing(cell)}", cell_left(cell)])
        shown.append(_bar("cell", cell.fraction, now, width))
        shown.append(_under(shortened(in_a_line(cell.label), width - INDENT), width))
        if cell.env_steps and len(sweep.running) == 1:
            shown.append(_under(done_by(cell), width))
    return Group(*shown)


def _bar(name: str, fraction: float, text: str, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    bar_width = max(5, min(WIDEST_BAR, width // 4))
    grid.add_column(no_wrap=True, width=INDENT - 2)
    grid.add_column(no_wrap=True, width=bar_width)
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(1, width - INDENT - bar_width - 2))
    grid.add_row(name, ProgressBar(total=1.0, completed=fraction, width=bar_width), Text(text))
    return grid


def _under(text: str, width: int) -> Text:
    cropped = Text(" " * INDENT + text, no_wrap=True)
    cropped.truncate(max(1, width), overflow="ellipsis")
    return cropped


def shortened(label: str, width: int) -> str:
    """A cell's label in `width` columns: its settings give way, since GPUs and seed at its end tell cells apart."""
    if len(label) <= width:
        return label
    tail = label[-max(0, min(width // 2, 28)) :]
    return f"{label[: max(0, width - len(tail) - 1)]}\N{HORIZONTAL ELLIPSIS}{tail}"


def place(number: int, num_cells: int) -> str:
    """`[3/8]`."""
    return f"[{number}/{num_cells}]"


def about_sweep(sweep: LiveSweep) -> str:
    """`3 of 8 cells, 1 failed; about 4 min 10 s left`."""
    return "; ".join(_of_sweep(sweep))


def _of_sweep(sweep: LiveSweep) -> Iterator[str]:
    cells = "1 cell" if sweep.num_cells == 1 else f"{sweep.num_cells} cells"
    yield f"{sweep.num_ended} of {cells}" + (f", {sweep.num_failed} failed" if sweep.num_failed else "")
    if sweep.num_waiting is not None:
        yield f"{sweep.num_running} running, {sweep.num_waiting} waiting"
    if sweep.phase == "starts":
        yield "starting"
    if sweep.left_s is not None:
        yield str(TimeLeft(seconds=sweep.left_s, is_at_most=sweep.left_is_at_most))


def doing(cell: RunningCell) -> str:
    """`learn, iteration 12`; only the step of its start until the first has ended."""
    phase = in_a_line(cell.phase)
    return f"{phase}, iteration {cell.iterations}" if cell.env_steps and cell.iterations else phase


def done_by(cell: RunningCell) -> str:
    """`1,234 steps/s so far; 45,678 env steps`."""
    unit = "agent steps" if cell.joint_steps else "env steps"
    return "; ".join([*([f"{rates(cell)} so far"] if cell.steps_per_s else []), f"{cell.env_steps:,} {unit}"])


def line(cell: RunningCell, num_cells: int) -> str:
    """The progress of a cell as one plain line."""
    done = f", {done_by(cell)}" if cell.env_steps else ""
    where = f"{place(cell.number, num_cells)} {in_a_line(cell.label)}"
    return f"{where}: {doing(cell)}{done}, {cell_left(cell)}".replace("; ", ", ")


def cell_left(cell: RunningCell) -> str:
    """`12 s left`, by the cell's own progress; before its first env step, for how long it has been starting.

    A budget that is spent says not when the iteration under way will end.
    """
    if not cell.env_steps:
        return f"for {in_words(cell.elapsed_s)}"
    if cell.fraction >= 1:
        return "about to end"
    return "time left unknown" if cell.left_s is None else f"{in_words(cell.left_s)} left"


def rates(cell: RunningCell) -> str:
    """`1,234 steps/s`; where environments have several agents, of agent steps and of env steps."""
    names = units.rates("agent steps" if cell.joint_steps else "env steps")
    named = zip((cell.steps_per_s, cell.joint_steps_per_s), names, strict=False)
    return ", ".join(f"{rate:,.0f} {unit}" for rate, unit in named)


def told_of(record: RunRecord) -> str:
    """What is said of a cell behind the status in which it ended."""
    if record.reason:
        return f": {record.reason}"
    figures, around = record.figures, ""
    if record.starting_s is not None and record.ending_s is not None:
        around = f" (starting took {record.starting_s:.1f} s, ending {record.ending_s:.1f} s)"
    named = zip((figures.steps_per_s, figures.env_steps_per_s), units.rates(record.counters.unit), strict=False)
    rates = "".join(f", {rate:,.0f} {unit}" for rate, unit in named if rate)
    return f"{rates}{around}" if rates else ""


def in_a_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def _done(sweep: LiveSweep) -> float:
    """Share of the cells that has been run."""
    return (sweep.num_ended + sum(cell.fraction for cell in sweep.running)) / max(1, sweep.num_cells)
