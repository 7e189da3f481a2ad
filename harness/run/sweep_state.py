"""The state of a sweep, from what is in its folder alone: its plan, the runs that have ended, and `live.json`.

For whoever watches a sweep from another shell, or from another machine that has the folder. Nothing here writes, takes
a lock, or loads a system or scenario; what is read may be anybody's (`results/reading/untrusted.py`). Nothing blocks,
but for the file system. `harness/live/state.py` says who writes `live.json` and when, and what a death leaves.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rlbench.harness.live.state import LIVE_FILE, LiveSweep, read_live
from rlbench.harness.run.sweep import PLAN_FILE, Sweep, begun
from rlbench.results.reading.untrusted import visible
from rlbench.results.records import store
from rlbench.results.records.store import StoredRun, Unreadable

QUIET_S = 5.0
"""Seconds without a change of `live.json`, which is written once a second, after which there is no news."""
GONE_S = 60.0
"""Seconds without news after which a runner on another machine is taken for gone."""
NUMBERED = re.compile(r"(\d{3,6})-")
"""How the name of a run's folder begins: with the number of its cell, from 1."""

Phase = Literal["runs", "quiet", "gone", "over"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedCell:
    """The latest run of a cell that has ended."""

    number: int
    """The cell's place in the plan, from 1."""
    label: str
    run: StoredRun


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepState:
    """A sweep at one moment."""

    folder: Path
    phase: Phase
    """`runs`, or is about to; `quiet`: there is no news, though its runner may live; `gone`: its runner is; `over`: its
    runner has ended, or there never was one."""
    labels: tuple[str, ...]
    """Of its cells, in order."""
    live: LiveSweep | None
    """What the runner wrote last; None where there is nothing, or nothing that can be read."""
    quiet_s: float
    """Seconds since that changed, as far as this process has seen."""
    ended: tuple[EndedCell, ...]
    """In the order of the plan."""
    runs: tuple[StoredRun, ...]
    """All runs of the folder that can be read, oldest first."""
    unreadable: tuple[Unreadable, ...]
    """Run folders that cannot be read, and a `live.json` that is damaged."""

    @property
    def num_finished(self) -> int:
        """Cells whose latest run finished."""
        return sum(cell.run.record.status == "finished" for cell in self.ended)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to be expected."""
        return self.phase in {"gone", "over"}


@dataclass(slots=True)
class _Ended:
    """The run folders that were read; one never changes, since it gets its name when it is complete."""

    runs: dict[Path, StoredRun] = field(default_factory=dict)
    unreadable: dict[Path, Unreadable] = field(default_factory=dict)

    def look(self, folder: Path) -> None:
        """Reads the new ones. Raises ValueError where the folder cannot be read."""
        for path in store.run_folders(folder):
            if path in self.runs or path in self.unreadable:
                continue
            try:
                self.runs[path] = store.load_run(path)
            except ValueError as problem:
                self.unreadable[path] = Unreadable.because(path, problem)


class SweepReader:
    """Reads the state of one sweep again and again."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds the plan. Raises ValueError where that cannot be read."""
        self.folder = folder
        try:
            self.sweep = Sweep.read(folder / PLAN_FILE)
        except ValueError as problem:
            raise ValueError(f"{str(problem).partition('; ')[0]}; name the folder of another sweep") from None
        self._labels = tuple(visible(cell.label) for cell in self.sweep.cells)
        self._read = _Ended()
        self._last: LiveSweep | None = None
        self._since = time.monotonic()

    def look(self) -> SweepState:
        """The state now. Raises ValueError where the folder is gone."""
        live, damaged = self._live()
        phase = self._phase(live, is_there=live is not None or bool(damaged))
        self._read.look(self.folder)  # after `live.json`: its runner removes that when the last run has its name
        ended = tuple(self._ended())
        return SweepState(
            folder=self.folder,
            phase=phase,
            labels=self._labels,
            live=live,
            quiet_s=time.monotonic() - self._since,
            ended=ended,
            runs=tuple(sorted(self._read.runs.values(), key=lambda run: run.record.began)),
            unreadable=(*self._read.unreadable.values(), *damaged),
        )

    def _live(self) -> tuple[LiveSweep | None, list[Unreadable]]:
        try:
            live = read_live(self.folder)
        except ValueError as problem:  # on a network file system also while the file is replaced
            return self._last, [Unreadable.because(self.folder / LIVE_FILE, problem)]
        if live != self._last:
            self._last, self._since = live, time.monotonic()
        return live, []

    def _phase(self, live: LiveSweep | None, *, is_there: bool) -> Phase:
        if not is_there:
            return "over"
        quiet_s = time.monotonic() - self._since
        lives = None if live is None else live.writer.lives
        if lives is False or (lives is None and quiet_s > GONE_S):
            return "gone"
        return "quiet" if quiet_s > QUIET_S else "runs"

    def _ended(self) -> Iterator[EndedCell]:
        of_cells: dict[int, list[StoredRun]] = defaultdict(list)
        for path, run in self._read.runs.items():
            if (numbered := NUMBERED.match(path.name)) and 1 <= int(numbered[1]) <= len(self._labels):
                of_cells[int(numbered[1])].append(run)
        for number, runs in sorted(of_cells.items()):
            latest = max(runs, key=lambda run: (run.record.began, str(run.path)))
            yield EndedCell(number=number, label=self._labels[number - 1], run=latest)


def newest(folder: Path) -> Path:
    """The folder of the sweep that began last in a folder of sweeps, or the folder itself if it is a sweep's.

    Raises ValueError where there is none.
    """
    if (folder / PLAN_FILE).exists():
        return folder if folder.name else folder.resolve()
    folders = [plan.parent for plan in folder.glob(f"*/{PLAN_FILE}")]
    if not folders:
        what = "holds no sweep" if folder.is_dir() else "is not there"
        raise ValueError(f"{folder}: {what}; name the folder that `rlbench run --out` writes, or that of a sweep")
    return max(folders, key=begun)
