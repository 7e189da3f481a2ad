"""Hundreds of environments that misbehave, in every system: each sweep goes on, each reason names the cause."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.harness.disks import AllSharedMemory, OwnSharedMemory
from tests.harness.misbehaving import SYSTEMS, Ended, ended, start
from tests.harness.misbehaving_plugin.cases import CASES, LEARNING, Case

AT_ONCE = 2
"""Sweeps side by side."""
NUM_PARTS = 10


def _dealt(part: int) -> dict[str, list[Case]]:
    """The cases of each system: a part of all, and the one that each has."""
    chosen = np.random.default_rng(0).permutation(len(CASES))[part::NUM_PARTS]
    dealt = {system: [CASES[at] for at in chosen[number :: len(SYSTEMS)]] for number, system in enumerate(SYSTEMS)}
    return {system: [LEARNING, *cases] for system, cases in dealt.items()}


def _run(
    folder: Path, dealt: dict[str, list[Case]], systems: Sequence[str], own: Sequence[str]
) -> tuple[list[Ended], list[str]]:
    """The cells of some systems' sweeps, which go on side by side, and what is wrong with the sweeps.

    `own`: a command that gives them a /dev/shm of the check's own.
    """
    cells, wrong = list[Ended](), list[str]()
    sweeps = {system: start(folder / system, system, dealt[system], wrapper=own) for system in systems}
    try:
        for system, sweep in sweeps.items():
            code = sweep.end(len(dealt[system]))
            of_system = ended(sweep, system, dealt[system])
            cells += of_system
            wrong += [f"{system} ended with {code}"] if code != 1 else []
            wrong += [f"{system} printed a traceback: {sweep.stderr}"] if "Traceback" in sweep.stderr else []
            left = [*map(str, sweep.processes()), *map(str, sweep.files_left())]
            wrong += [f"{system} left {left}"] if left else []
    finally:
        for sweep in sweeps.values():
            sweep.__exit__()
    return cells, wrong


@pytest.mark.parametrize("part", range(NUM_PARTS))
def check_every_way_to_misbehave_is_named(
    part: int,
    tmp_path: Path,
    shared_memory: OwnSharedMemory | AllSharedMemory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each sweep goes on to its last cell, with exit code 1; each record names class or rule, and the environment."""
    dealt, cells, wrong = _dealt(part), list[Ended](), list[str]()
    systems = list(SYSTEMS)
    for first in range(0, len(systems), AT_ONCE):
        of_these, problems = _run(tmp_path, dealt, systems[first : first + AT_ONCE], shared_memory.enter)
        cells += of_these
        wrong += problems
    bad = [cell for cell in cells if cell.problems]
    with capsys.disabled():
        print(f"\n{'case':32} {'call':17} {'system':9} {'status':9} reason")  # noqa: T201
        print("\n".join(cell.row() for cell in cells))  # noqa: T201
        print(f"{len(cells)} environments: {len(cells) - len(bad)} as promised, {len(bad)} not")  # noqa: T201
    assert [(cell.row(), cell.problems) for cell in bad] == []
    assert wrong == []
