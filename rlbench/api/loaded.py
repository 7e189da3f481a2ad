"""Runs that were read: as pandas frames, as sentences, and as an HTML table for notebooks.

What needs more than the standard library is imported where it is used, so that the docs can show this without it.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.api.words import words_of
from rlbench.results.reading.untrusted import visible

if TYPE_CHECKING:
    import pandas as pd

    from rlbench.harness.commands.read_runs import Found, SummaryOptions
    from rlbench.results.summary.document import Summary

Folder = str | os.PathLike[str]
OUT = Path("rlbench-runs")
"""Where runs are, unless the user names a folder."""


class Results:
    """What a set of runs says; `rlbench.load`, `run` and `predict` make it.

    In a notebook it shows the answers, what spoils figures, and a table of the cells; `print` writes the table of the
    command. All frames are made once: copy one before you change it.
    """

    def __init__(self, found: Found, folders: Sequence[Path], options: SummaryOptions) -> None:
        self.folders: tuple[Path, ...] = tuple(folders)
        """The folders that were read."""
        self._found, self._options = found, options

    @cached_property
    def summary(self) -> Summary:
        """All that the report says, as one document: what `rlbench export --format json` writes."""
        return self._found.summary(self._options)

    @property
    def answers(self) -> list[str]:
        """The answer for each scenario and workload, in a few sentences."""
        return self.summary.answers

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each run, also one that failed, the oldest first; `folder` is where all that it left is."""
        from rlbench.api.frames import runs_frame

        return runs_frame(self._found.runs, self.summary.runs)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row for each cell: the runs that differ only in their seeds."""
        from rlbench.api.frames import cells_frame

        return cells_frame(self.summary.cells)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """A row for each 95 % interval of a cell's figure: what it comes from, or what it lacks."""
        from rlbench.api.frames import intervals_frame

        return intervals_frame(self.summary.cells)

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """A row for each pair of systems on the same work: the ratio of their steps/s."""
        from rlbench.api.frames import comparisons_frame

        return comparisons_frame(self.summary.comparisons)

    @cached_property
    def learning(self) -> pd.DataFrame:
        """A row for each point of each cell's learning curve."""
        from rlbench.api.frames import learning_frame

        return learning_frame(self.summary.cells)

    @cached_property
    def time_shares(self) -> pd.DataFrame:
        """A row for each stage of each cell: where the time went."""
        from rlbench.api.frames import time_shares_frame

        return time_shares_frame(self.summary.cells)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """A row for each problem that spoils figures, or may: runs that failed or cannot be read, and warnings."""
        from rlbench.api.frames import findings_frame

        return findings_frame(self.summary.findings)

    def report(
        self,
        out: Folder | None = None,
        *,
        format: str = "html",  # noqa: A002  as the option is called
        title: str | None = None,
        reference: str | None = None,
        threshold: float | None = None,
        history: Folder | None = None,
    ) -> Path:
        """Writes the report; see `rlbench.report`. Returns the file's path."""
        from rlbench.harness.commands.report.command import write_page
        from rlbench.harness.commands.report.options import ReportOptions

        own, page = self._options, Path(f"rlbench-report.{format}" if out is None else out)
        compared = replace(
            own,
            reference=own.reference if reference is None else reference,
            threshold=own.threshold if threshold is None else threshold,
        )
        asked = ReportOptions(format=format, title=title, history=None if history is None else Path(history))
        words = words_of(
            "report", {"out": page, "format": format, "title": title, **asdict(compared), "history": history}
        )
        command = ["rlbench", "report", *(visible(str(folder)) for folder in self.folders), *map(visible, words[1:])]
        write_page(self._found, page, asked, compared, command)
        return page

    def __len__(self) -> int:
        return len(self._found.runs)

    def __repr__(self) -> str:
        runs, cells = len(self), len(self.summary.cells)
        where = ", ".join(visible(str(folder)) for folder in self.folders)
        return f"<rlbench.Results: {_many(runs, 'run')} in {_many(cells, 'cell')}, of {where}>"

    def __str__(self) -> str:
        from rlbench.reports.terminal.table import HINT, make_console, print_table

        text = io.StringIO()
        console = make_console(text)
        if sys.stdout is not None and sys.stdout.isatty():
            console.width = shutil.get_terminal_size().columns
        print_table(self.summary, console)
        return text.getvalue().rstrip("\n").removesuffix(HINT).rstrip("\n")  # --explain is a word of the command line

    def _repr_html_(self) -> str:
        from rlbench.api.shown import page_of

        return page_of(self.summary)


def load(folders: Sequence[Folder], reference: str | None = None, threshold: float | None = None) -> Results:
    """What `rlbench.load` does."""
    from rlbench.harness.commands.read_runs import SummaryOptions, find, newest_sweep

    paths = [Path(folder) for folder in folders] or [newest_sweep(OUT)]
    results = Results(find(paths), paths, SummaryOptions(reference=reference, threshold=threshold))
    if reference is not None:
        _ = results.summary  # which says if there is no run of it
    return results


def report(results: Results | Folder | Iterable[Folder] | None, out: Folder | None, **options: Any) -> Path:
    """What `rlbench.report` does."""
    if results is None:
        results = load([])
    elif isinstance(results, (str, os.PathLike)):
        results = load([results])
    elif not isinstance(results, Results):
        results = load(list(results))
    return results.report(out, **options)


def _many(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"
