"""What reads the files of others, from the top: what commands do with a folder in which one file was spoilt.

A target is made in a folder of its own, and called with the bytes of one spoilt file after the other. It returns
whether the file was read, or named as one that cannot be; whatever it raises is a fault. One bad file in a sweep may
not keep its other runs from being shown: of what is said of a sweep, not even a ValueError is allowed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from rlbench.harness.commands.evaluate import ranks_left
from rlbench.harness.commands.profile.gpu import AssumedLink
from rlbench.harness.commands.profile.making import measure
from rlbench.harness.commands.read_runs import Found, SummaryOptions, find, keep_history, print_results
from rlbench.harness.commands.run import run_sweep
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.registry import load_scenario
from rlbench.harness.run.sweep import PLAN_FILE
from rlbench.reports.exports.export import to_csv, to_json, write_parquet
from rlbench.reports.exports.markdown import to_markdown
from rlbench.reports.exports.trace import read_trace
from rlbench.reports.exports.tracked import tracked
from rlbench.reports.page.html import write_report
from rlbench.reports.page.timeline import read_iterations, with_iterations
from rlbench.reports.terminal.compared import print_compared
from rlbench.results.reading.tables import SPANS_FILE
from rlbench.results.reading.untrusted import WEIGHTS_BYTES, opened
from rlbench.results.records.index import index_path
from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.store import RUN_FILE
from rlbench.results.verdicts.compare import Runs, compare
from rlbench.results.verdicts.gate import judge
from rlbench.results.verdicts.history import rows_of, series_of
from tests.fuzz.samples import VICTIM, make_sweep

FAULT = "fault"
EVERY = 8
"""Of the files that cannot be read, for one in so many the rest of the sweep is shown."""


class Target(Protocol):
    """Reads files of one kind."""

    def __call__(self, data: bytes) -> bool:
        """Reads one; returns whether it could be read."""


@contextlib.contextmanager
def refusable() -> Iterator[None]:
    """Of what is about one file or run alone, an error in one line is an answer."""
    try:
        yield
    except ValueError as problem:
        check_refusal(problem)


def check_refusal(problem: ValueError) -> None:
    """Raises AssertionError for an error that says what Python or Arrow ran out of, and not what is wrong."""
    text = str(problem)
    assert text, repr(problem)
    assert "alloc" not in text, text
    assert "\x1b" not in text, repr(text)


class OfSweep:
    """A file of one run of a sweep; each file is read by what lists runs, and by one command after the other."""

    def __init__(self, folder: Path, name: str) -> None:
        self._sweep, self._folder = make_sweep(folder), folder
        self._run = self._sweep / VICTIM
        self._file = self._run / name
        often = (self._profile, self._print, self._export)
        self._commands = itertools.cycle([*[*often * 4, self._compare] * 4, self._page, self._parquet])
        self._clock = itertools.count()

    def __call__(self, data: bytes) -> bool:
        """Looks for the runs of the sweep, and has a command say what they are."""
        self._file.write_bytes(data)
        now = next(self._clock)
        os.utime(self._run / RUN_FILE, ns=(now, now))  # else what is remembered of it would count
        found = find([self._sweep])
        for each in found.unreadable:
            check_refusal(ValueError(each.reason))
        was_read = any(run.path == self._run for run in found.runs)
        if was_read or not now % EVERY:
            next(self._commands)(found)
        return was_read

    def _print(self, _: Found) -> None:
        print_results(self._sweep, [], None, "table")

    def _export(self, found: Found) -> None:
        summary = found.summary(SummaryOptions())
        summary = with_iterations(summary, read_iterations(summary, found.folders()))
        summary.to_json()
        to_json(summary.runs)
        to_csv(summary.runs)
        to_markdown(summary)

    def _compare(self, found: Found) -> None:
        runs = Runs(name="a", runs=found.runs, unreadable=found.unreadable)
        print_compared(compare(runs, runs))
        judge(runs, runs)

    def _page(self, found: Found) -> None:
        page = self._folder / "report.html"
        write_report(found.summary(SummaryOptions()), found.folders(), page, title="", command=["rlbench"])
        assert "\x1b" not in page.read_text(encoding="utf-8")

    def _parquet(self, found: Found) -> None:
        write_parquet(found.summary(SummaryOptions()).runs, self._folder / "runs.parquet")

    def _profile(self, found: Found) -> None:
        """What is about this run alone."""
        for run in found.runs:
            if run.path == self._run:
                with refusable():
                    measure(run, AssumedLink())
                with refusable():
                    "".join(read_trace([(run.path, run.record)]).pieces())
                with refusable():
                    ranks_left(run)
                with refusable():
                    tracked(run)
                with refusable():
                    series_of(rows_of([run]))


class OfPlan:
    """The plan of a sweep that is taken up again."""

    def __init__(self, folder: Path) -> None:
        self._sweep = make_sweep(folder)

    def __call__(self, data: bytes) -> bool:
        """Prints what is left to run."""
        (self._sweep / PLAN_FILE).write_bytes(data)
        try:
            run_sweep(RunOptions(), self._sweep.parent, resume=True, dry_run=True, command=[])
        except ValueError as problem:
            check_refusal(problem)
            return False
        return True


class OfIndex:
    """What is remembered of runs: nothing in it can keep them from being listed."""

    def __init__(self, folder: Path) -> None:
        self._sweep = make_sweep(folder)
        find([self._sweep])

    def __call__(self, data: bytes) -> bool:
        """Prints the sweep."""
        index_path().write_bytes(data)
        print_results(self._sweep, [], None, "table")
        return True


class OfFile:
    """A file that somebody names: a history, or a profile."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / name

    def __call__(self, data: bytes) -> bool:
        """Prints the history, or loads the scenario."""
        self._file.write_bytes(data)
        try:
            if self._file.suffix == ".toml":
                load_scenario(f"emulated/{self._file}", "heterogeneous", {})
            else:
                keep_history([], self._file, as_json=False)
        except ValueError as problem:
            check_refusal(problem)
            return False
        return True


class OfWeights:
    """The weights that a run has left."""

    def __init__(self, folder: Path) -> None:
        from rlbench.systems.engine.rank.evaluate import _load_policy
        from tests.systems.engine.counting import CountingScenario

        self._file, self._load, self._scenario = folder / "policy.pt", _load_policy, CountingScenario()

    def __call__(self, data: bytes) -> bool:
        """Loads the policy."""
        self._file.write_bytes(data)
        try:
            with opened(self._file, WEIGHTS_BYTES):
                self._load(self._scenario, self._file)
        except ValueError as problem:
            check_refusal(problem)
            return False
        return True


class Faulty:
    """Is a fault itself: it does what the file says, to see that a fault is seen."""

    def __init__(self, folder: Path) -> None:
        """`folder` is as for the others."""

    def __call__(self, data: bytes) -> bool:
        """Runs the file, which is one of the test's."""
        exec(data.decode())  # noqa: S102
        return True


def make_target(name: str, folder: Path) -> Target:
    """The target of a kind of file, in an empty folder; what it remembers of runs is kept there."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    of_run = {"record": RUN_FILE, "series": SERIES_FILE, "spans": SPANS_FILE}
    if name in of_run:
        return OfSweep(folder, of_run[name])
    of_file = {"profile": "profile.toml", "history": "history.jsonl"}
    if name in of_file:
        return OfFile(folder, of_file[name])
    others: dict[str, Callable[[Path], Target]] = {
        "plan": OfPlan,
        "index": OfIndex,
        "weights": OfWeights,
        FAULT: Faulty,
    }
    return others[name](folder)
