"""What `rlbench gate` does, in steps; `harness/cli/gate.py` gives it its options."""

from __future__ import annotations

import math
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rlbench.harness.commands.gate.in_turn import STILL, Measuring, NoStillWork, measure
from rlbench.harness.commands.gate.revisions import checked_out, find_commit, has_changes
from rlbench.harness.commands.read_runs import find
from rlbench.reports.terminal.gated import print_gate, to_junit, to_markdown, workflow_commands
from rlbench.reports.terminal.table import make_console
from rlbench.results.reading.outputs import STREAMS, write_output
from rlbench.results.reading.untrusted import visible
from rlbench.results.verdicts.compare import Runs
from rlbench.results.verdicts.gate import Gate, check_tolerance, judge

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


def gate_folders(baseline: Path, candidate: Path, tolerance: float, outputs: Outputs) -> int:
    """Judges two folders of runs; returns the exit code."""
    outputs.check()
    sides = []
    for folder in (baseline, candidate):
        found = find([folder])
        sides.append(Runs(name=visible(str(folder)), runs=found.runs, unreadable=found.unreadable))
    return _tell(judge(*sides, tolerance=tolerance), make_console(), outputs)


def gate_revisions(
    baseline: str,
    candidate: str,
    options: Sequence[str],
    *,
    budget_s: float,
    tolerance: float,
    seed: int,
    out: Path,
    outputs: Outputs,
) -> int:
    """Builds two revisions of the git repository here, measures them in turn, and judges; returns the exit code.

    With the same revision on both sides it also says how large a change must be to be seen.
    """
    console, repository = make_console(), Path.cwd()
    outputs.check()
    check_tolerance(tolerance)
    commits = {name: find_commit(name, repository) for name in (baseline, candidate)}
    if has_changes(repository):
        _say(console, "uncommitted changes of this work tree are not measured")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rlbench-gate-")))
        revisions = {}
        for commit in dict.fromkeys(commits.values()):
            name = next(name for name, known in commits.items() if known == commit)
            _say(console, f"building {name} ({commit[:12]}): minutes, unless it is kept from before")
            revisions[commit] = stack.enter_context(checked_out(name, commit, repository, folder))
        is_ours = "--protocol" not in options
        measuring = Measuring(
            options=[*options, *(STILL if is_ours else ())],
            out=out / f"{datetime.now().astimezone():gate-%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",  # unpredictable
            first_seed=seed,
            budget_s=budget_s,
            tolerance=tolerance,
        )
        sides = revisions[commits[baseline]], revisions[commits[candidate]]
        try:
            try:
                gate = measure(*sides, measuring, lambda line: _say(console, line))
            except NoStillWork as problem:
                if not is_ours:
                    raise
                _say(console, f"{problem}; what is measured is not still work, and changes as policies learn")
                measuring = replace(measuring, options=options, out=measuring.out.with_name(f"{measuring.out.name}-b"))
                gate = measure(*sides, measuring, lambda line: _say(console, line))
        except KeyboardInterrupt:
            _say(console, f"interrupted; runs so far: {measuring.out}")
            raise
    code = _tell(gate, console, outputs)
    if commits[baseline] == commits[candidate]:
        for line in noise_floor(gate):
            _say(console, line)
    _say(console, f"runs: {measuring.out}")
    return code


def noise_floor(gate: Gate) -> list[str]:
    """For a gate with the same code on both sides: how far apart they are, and the smallest change that can be seen."""
    lines = []
    for check in gate.checks:
        ratio = check.ratio
        if ratio is None or ratio.low is None or ratio.high is None:
            continue
        half = math.sqrt(ratio.high / ratio.low) - 1
        lines.append(
            f"{check.where}, {check.title}: noise +-{100 * half:.1f} %: so large a change is seen, and a regression "
            f"from {100 * (gate.tolerance + half):.1f} % on"
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
