"""What `rlbench gate` does, in steps; `harness/cli/gate.py` gives it its options."""

from __future__ import annotations

import math
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from rlbench.harness.commands.gate.bisect import Search
from rlbench.harness.commands.gate.halves import halves_of
from rlbench.harness.commands.gate.repetitions import AT_ONCE_S, STILL, Measuring, NoStillWork, measure
from rlbench.harness.commands.gate.revisions import checked_out, commits_between, find_commit, has_changes
from rlbench.harness.commands.read_runs import find
from rlbench.reports.terminal.gated import print_gate, to_junit, to_markdown, workflow_commands
from rlbench.reports.terminal.table import make_console
from rlbench.results.reading.outputs import STREAMS, write_output
from rlbench.results.reading.untrusted import visible
from rlbench.results.verdicts.compare import Runs
from rlbench.results.verdicts.gate import Gate, check_tolerance, judge
from rlbench.results.verdicts.learning import Goal, judge_learning
from rlbench.results.verdicts.metrics import METRICS

Found = TypeVar("Found")
LENGTHS = {"--seconds", "--iterations"}
"""Options that say how long a run is."""
LEARNING_SHARE = 0.25
"""Of the budget, that a repetition of one cell may take to learn, unless `--seconds` says otherwise."""
HANGING_S = 600.0
"""What a run that learns may take beyond its time before it is ended as one that hangs."""
NOT_WRITTEN = 2
"""Exit code of a gate that passed but could not write its output files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """Files to write the outcome to, beside the terminal."""

    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None

    def check(self) -> None:
        """Raises ValueError for a file that cannot be written, before anything is measured."""
        for path in filter(None, (self.json, self.junit, self.markdown)):
            if not path.absolute().parent.is_dir():
                raise ValueError(f"{path}: its folder is not there")
            if path.is_dir():
                raise ValueError(f"{path}: is a folder")
            if path.absolute().parent not in STREAMS and (path.is_fifo() or path.is_socket()):
                raise ValueError(f"{path}: is no regular file")

    def write(self, gate: Gate) -> None:
        """Writes the files."""
        made = ((self.json, gate.to_json()), (self.junit, to_junit(gate)), (self.markdown, to_markdown(gate)))
        for path, text in made:
            if path is not None:
                write_output(path, [text])


def gate_folders(baseline: Path, candidate: Path, tolerance: float, goal: Goal | None, outputs: Outputs) -> int:
    """Judges two folders of runs, by how soon they reached a goal if there is one; returns the exit code."""
    outputs.check()
    sides = []
    for folder in (baseline, candidate):
        found = find([folder])
        sides.append(Runs(name=visible(str(folder)), runs=found.runs, unreadable=found.unreadable))
    gate = judge_learning(*sides, goal=goal, tolerance=tolerance) if goal else judge(*sides, tolerance=tolerance)
    return _tell(gate, make_console(), outputs)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToMeasure:
    """What is measured of revisions, as it was asked for."""

    options: Sequence[str]
    """Options of `rlbench run`, without seeds and `--out`."""
    device: str | None
    in_turn: bool
    """Whether one revision is measured after the other, on all cores."""
    seed: int
    budget_s: float
    tolerance: float
    goal: Goal | None
    """What both sides are to learn; None to judge steps/s."""
    out: Path

    @property
    def is_still(self) -> bool:
        """Whether it is still work because nobody asked for something else."""
        return "--protocol" not in self.options and self.goal is None

    def measuring(self, *, to_its_end: bool = False) -> Measuring:
        """How it is measured. Raises ValueError for a tolerance or a device that there is not."""
        check_tolerance(self.tolerance)
        halves = None if self.in_turn else halves_of(sorted(os.sched_getaffinity(0)), self.device)
        added = [*STILL] if self.is_still else []
        is_free = self.is_still and halves is not None and not LENGTHS & {*self.options}
        if self.goal:
            added = self._until(self.goal, at_once=halves is not None)
        return Measuring(
            options=[*self.options, *added],
            out=self.out / f"{datetime.now().astimezone():gate-%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",  # unpredictable
            first_seed=self.seed,
            budget_s=self.budget_s,
            tolerance=self.tolerance,
            goal=self.goal,
            seconds=AT_ONCE_S if is_free else None,
            halves=halves,
            to_its_end=to_its_end,
        )

    def _until(self, goal: Goal, *, at_once: bool) -> list[str]:
        """Options of runs that end at a goal, or after so many seconds: one that never gets there must finish too."""
        given = [float(value) for name, value in pairwise(self.options) if name == "--seconds"]
        seconds = given[0] if given else LEARNING_SHARE * self.budget_s / (1 if at_once else 2)
        added = [] if given else ["--seconds", f"{seconds:g}"]
        return ["--until", str(goal), *added, "--time-limit", f"{2 * seconds + HANGING_S:g}"]


def gate_revisions(baseline: str, candidate: str, asked: ToMeasure, outputs: Outputs) -> int:
    """Builds two revisions of the git repository here, measures them, and judges; returns the exit code.

    With the same revision on both sides it also says how large a change must be to be seen.
    """
    console, repository = make_console(), Path.cwd()
    outputs.check()
    commits = {name: find_commit(name, repository) for name in (baseline, candidate)}
    is_aa = commits[baseline] == commits[candidate] and asked.goal is None
    measuring = asked.measuring(to_its_end=is_aa)
    if has_changes(repository):
        _say(console, "uncommitted changes of this work tree are not measured")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rlbench-gate-")))
        revisions = {}
        for commit in dict.fromkeys(commits.values()):
            name = next(name for name, known in commits.items() if known == commit)
            _say(console, f"building {name} ({commit[:12]}), unless it is kept from before")
            revisions[commit] = stack.enter_context(checked_out(name, commit, repository, folder))
        sides = revisions[commits[baseline]], revisions[commits[candidate]]
        gate, out = _measured(
            console, asked, measuring, lambda how: measure(*sides, how, lambda line: _say(console, line))
        )
    code = _tell(gate, console, outputs)
    if is_aa:
        for line in noise_floor(gate):
            _say(console, line)
    _say(console, f"runs: {out}")
    return code


def bisect_revisions(good: str, bad: str, asked: ToMeasure) -> int:
    """Finds the commit after `good`, up to `bad`, that made a cell slower; returns the exit code."""
    console, repository = make_console(), Path.cwd()
    first, last = (find_commit(name, repository) for name in (good, bad))
    commits = commits_between(first, last, repository)
    if not commits:
        raise ValueError(f"--bisect: {good} and {bad} are the same commit")
    measuring = asked.measuring()
    _say(console, f"{len(commits)} commits after {first[:12]}")
    with tempfile.TemporaryDirectory(prefix="rlbench-gate-") as folder:

        def search(how: Measuring) -> int:
            found = Search(
                good=first,
                commits=commits,
                repository=repository,
                folder=Path(folder),
                measuring=how,
                say=lambda line: _say(console, line),
            )
            return found.run()

        code, out = _measured(console, asked, measuring, search)
    _say(console, f"runs: {out}")
    return code


def _measured(
    console: Console, asked: ToMeasure, measuring: Measuring, find: Callable[[Measuring], Found]
) -> tuple[Found, Path]:
    """What was found by measuring, and the folder of the runs: of still work, unless a revision does not know it."""
    try:
        try:
            return find(measuring), measuring.out
        except NoStillWork as problem:
            if not asked.is_still:
                raise
            _say(console, f"{problem}; what is measured is not still work, and changes as policies learn")
            again = measuring.out.with_name(f"{measuring.out.name}-b")
            measuring = replace(measuring, options=asked.options, seconds=None, out=again)
            return find(measuring), measuring.out
    except KeyboardInterrupt:
        _say(console, f"interrupted; runs so far: {measuring.out}")
        raise


def noise_floor(gate: Gate) -> list[str]:
    """For a gate with the same code on both sides: how far apart they are, and the smallest change that can be seen.

    A change is seen by 95 of 100 such gates if its interval, which lies around it, ends before 1 that often.
    """
    from scipy import special

    lines = []
    for check in gate.checks:
        ratio = check.ratio
        if check.metric != METRICS[0].name or ratio is None or ratio.low is None or ratio.high is None:
            continue
        freedom = ratio.num_units - 1 if check.paired else 2 * ratio.num_units - 2
        half = math.log(ratio.high / ratio.low) / 2
        power = special.stdtrit(freedom, 0.95) / special.stdtrit(freedom, (1 + gate.level) / 2)
        noise, floor = math.expm1(half), math.expm1(half * (1 + power))
        lines.append(
            f"{check.where}, {check.title}: noise +-{100 * noise:.1f} %: 95 of 100 such gates see a change of "
            f"{100 * floor:.1f} %, and a regression from {100 * (gate.tolerance + floor):.1f} % on"
        )
    return lines


def _tell(gate: Gate, console: Console, outputs: Outputs) -> int:
    print_gate(gate, console)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        sys.stdout.writelines(f"{line}\n" for line in workflow_commands(gate))
    try:
        outputs.write(gate)
    except OSError as problem:  # the verdict counts anyway
        print(f"rlbench: {problem.filename}: cannot be written ({problem.strerror})", file=sys.stderr)  # noqa: T201
        return gate.exit_code or NOT_WRITTEN
    return gate.exit_code


def _say(console: Console, line: str) -> None:
    console.print(Text(line))
