"""What a command plans, by a dry run in this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.commands import run as run_command
from rlbench.harness.plan.cells import Cell
from tests.harness.command import call


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The cells of a sweep, and where its runs would be."""

    cells: list[Cell]
    out: Path

    @property
    def hashes(self) -> list[str]:
        """What identifies the cells, in their order."""
        return [cell.hash() for cell in self.cells]

    @property
    def limits(self) -> list[Any]:
        """What does not, and yet was asked for."""
        return [(cell.limits, cell.stall_s, cell.time_limit_s, cell.memory_limit_bytes) for cell in self.cells]


def planned(monkeypatch: pytest.MonkeyPatch, *words: str) -> Planned:
    """What `rlbench run` with these words plans."""
    got: list[Planned] = []
    with monkeypatch.context() as patched:
        patched.setattr(run_command, "_print_plan", lambda cells, out, _: got.append(Planned(cells=cells, out=out)))
        ended = call("run", *words, "--dry-run")
    assert ended.code == 0, ended.err
    return got[0]
