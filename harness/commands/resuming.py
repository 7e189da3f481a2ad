"""The command that takes a sweep up again, as it can be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rlbench.harness.plan import registry
from rlbench.harness.plan.cells import Cell
from rlbench.harness.run.sweep import Sweep
from rlbench.results.reading.untrusted import visible

FLAGS = ("--resume", "--dry-run", "--explain")
"""Options without a value that the command does not take over from the one that planned the sweep."""

REPLACED = ("--out", "--save")
"""Options with a value that it does not take over."""


def resume_command(sweep: Sweep, out: Path) -> str:
    """What goes on with the newest sweep in `out`: `--resume` alone, or with all options where it runs typed code.

    The options are those of the command that planned the sweep, each word quoted: they may come from anybody.
    `rlbench profile` has others, so there they are made of its cells.
    """
    first = ["rlbench", "run", "--resume", "--out", visible(str(out))]
    runs_code = any(
        cell.system_file is not None or registry.names_code(cell.scenario, cell.scenario_settings)
        for cell in sweep.cells
    )
    if not runs_code:
        return shlex.join(first)
    return shlex.join([*first, *(_of_profile(sweep.cells) if _is_profile(sweep) else _options(sweep.command))])


def _is_profile(sweep: Sweep) -> bool:
    return sweep.command[1:2] == ("profile",)


def _of_profile(cells: Sequence[Cell]) -> list[str]:
    """Options of `rlbench run` for the runs of a profile: cells that differ in their systems alone."""
    one, limits = cells[0], cells[0].limits
    seconds = [] if limits.seconds is None else ["--seconds", f"{limits.seconds:g}"]
    words = ["--systems", ",".join(cell.typed_system for cell in cells), "--scenario", one.typed_scenario]
    words += ["--workload", one.workload, "--seeds", str(one.seed), "--device", one.device]
    return [visible(word) for word in [*words, *seconds]]


def _options(command: Sequence[str]) -> list[str]:
    """The words behind `rlbench run`, without what `resume_command` says itself."""
    kept: list[str] = []
    words = iter(command[2:])
    for word in words:
        if word in REPLACED:
            next(words, None)
        elif word not in FLAGS and word.partition("=")[0] not in REPLACED:
            kept.append(visible(word))
    return kept
