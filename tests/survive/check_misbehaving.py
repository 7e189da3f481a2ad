"""Hundreds of environments that misbehave, in every system: each sweep goes on, each reason names the cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.harness.disks import SharedMemory
from tests.harness.hostile.misbehaving import SYSTEMS, Ended, ended, start
from tests.harness.hostile.misbehaving_plugin.cases import CASES, LEARNING, Case

NUM_PARTS = 10


def _dealt(part: int) -> dict[str, list[Case]]:
    """The cases of each system: a part of all, and the one that each has."""
    chosen = np.random.default_rng(0).permutation(len(CASES))[part::NUM_PARTS]
    dealt = {system: [CASES[at] for at in chosen[number :: len(SYSTEMS)]] for number, system in enumerate(SYSTEMS)}
    return {system: [LEARNING, *cases] for system, cases in dealt.items()}


def _run(folder: Path, system: str, cases: list[Case], own: Sequence[str]) -> tuple[list[Ended], list[str]]:
    """The cells of a system's sweep, and what is wrong with the sweep.

    `own`: a command that gives it a /dev/shm of the check's own.
    """
    with start(folder / system, system, cases, wrapper=own) as sweep:
        code = sweep.end(len(cases))
        left = [*map(str, sweep.processes()), *map(str, sweep.files_left())]
        wrong = [f"{system} ended with {code}"] if code != 1 else []
        wrong += [f"{system} printed a traceback: {sweep.stderr}"] if "Traceback" in sweep.stderr else []
        wrong += [f"{system} left {left}"] if left else []
        return ended(sweep, system, cases), wrong


@pytest.mark.parametrize("part", range(NUM_PARTS))
def check_every_way_to_misbehave_is_named(
    part: int,
    tmp_path: Path,
    shared_memory: SharedMemory,
    say: Callable[[str], None],
) -> None:
    """Each sweep goes on to its last cell, with exit code 1; each record names class or rule, and the environment."""
    dealt, cells, wrong = _dealt(part), list[Ended](), list[str]()
    for system, cases in dealt.items():
        of_system, problems = _run(tmp_path, system, cases, shared_memory.enter)
        cells += of_system
        wrong += problems
    bad = [cell for cell in cells if cell.problems]
    say(f"{'case':32} {'call':17} {'system':9} {'status':9} reason")
    say("\n".join(cell.row() for cell in cells))
    say(f"{len(cells)} environments: {len(cells) - len(bad)} as promised, {len(bad)} not")
    assert [(cell.row(), cell.problems) for cell in bad] == []
    assert wrong == []
