"""Prints a history in a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Console

from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import TableColumn
from rlbench.reports.terminal.table import make_console, print_blocks, print_lines
from rlbench.results.records import units
from rlbench.results.summary.document import HistoryRow, HistorySeries

MOST_ROWS = 20
"""Maximum rows of a series that are shown, the newest."""
SHORT = 12
"""Number of digits of a commit that are shown."""


def print_history(series: Sequence[HistorySeries], console: Console | None = None) -> None:
    """Prints each series with its changes, the newest revision last."""
    console = console or make_console()
    if not series:
        print_lines(console, ["no revisions: `rlbench history RUNS` adds those of a folder of runs"])
    for each in series:
        changed = {change.commit: change.ratio for change in each.changes}
        print_lines(console, [f"{each.name}; {each.machine}"])
        names: list[TableColumn[HistoryRow]] = [
            TableColumn(title="revision", value=lambda row: row.commit[:SHORT], is_number=False),
            TableColumn(title="measured", value=lambda row: row.measured_at[:16].replace("T", " "), is_number=False),
        ]
        unit = units.common(row.unit for row in each.rows)
        figures: list[TableColumn[HistoryRow]] = [
            TableColumn(title=units.rate(unit), value=lambda row: fmt.number(row.steps_per_s)),
            *(TableColumn(title=title, value=_env_rate) for title in units.rates(unit)[1:]),
            TableColumn(title=f"{units.rate(unit)}, 95 %", value=_interval),
            TableColumn(title="runs", value=lambda row: str(row.num_runs)),
            TableColumn(title="change", value=lambda row, changed=changed: _change(changed.get(row.commit))),  # type: ignore[misc]
        ]
        print_blocks(console, names, [figures], each.rows[-MOST_ROWS:])
        if len(each.rows) > MOST_ROWS:
            print_lines(console, [f"{len(each.rows) - MOST_ROWS} older revisions are not shown"])
        if (command := _search(each)) is not None:
            print_lines(console, [f"to find the commit that made it slower: {command}"])


def _search(series: HistorySeries) -> str | None:
    """The command that searches the commits up to the newest loss; None without one."""
    lost = [change.commit for change in series.changes if change.ratio < 1]
    if not lost:
        return None
    place = next(number for number, row in enumerate(series.rows) if row.commit == lost[-1])
    good, bad = series.rows[place - 1], series.rows[place]
    ends = ("--baseline", good.commit[:SHORT], "--candidate", bad.commit[:SHORT])
    cell = ("--systems", bad.system, "--gpus", str(bad.gpus), "--scenario", bad.scenario, "--workload", bad.workload)
    return shlex.join(["rlbench", "gate", "--bisect", *ends, *cell, "--device", bad.device])


def _env_rate(row: HistoryRow) -> str:
    return fmt.number(row.steps_per_s if row.env_steps_per_s is None else row.env_steps_per_s)


def _interval(row: HistoryRow) -> str:
    return fmt.NONE if row.low is None or row.high is None else fmt.interval((row.low, row.high))


def _change(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}x from here"
