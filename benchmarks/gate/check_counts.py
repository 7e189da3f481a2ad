"""Holds the instructions and allocations of hot paths against those of `BASELINE`: `nox -s gate`.

Both revisions are counted at once, one run each, by callgrind of Debian's package valgrind: counts are the same however
busy the machine is. The paths are those of this revision on both sides (`hot_paths.py`). Memory comes from malloc, not
from Python's pools, so that each allocation is a call that is counted.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.gate import hot_paths
from benchmarks.gate.baseline import BASELINE, ROOT, baseline_tree

LIMIT = 1.01
"""Most that a path may cost by what it cost: instructions, and allocations."""
CALLGRIND = (
    *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", "--callgrind-out-file=out"),
    *("--dump-instr=yes", "--dump-line=no", "--compress-strings=no", "--compress-pos=no"),
)
VARIABLES = {
    "PYTHONHASHSEED": "0",
    "PYTHONMALLOC": "malloc",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
}
LIMIT_S = 600
"""Seconds that counting may take; alone on two cores it takes 50."""
TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)
ALLOCATES = re.compile(
    r"^fn=(malloc|calloc|realloc|memalign|posix_memalign|aligned_alloc)\n0x(\w+) (\d+)$", re.MULTILINE
)
"""How often instructions of such a function were executed: its name, an address, and the number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What a call of a path costs."""

    instructions: float
    allocations: float


Side = Mapping[str, Counts | str]
"""Counts by path, or why it could not be counted."""


def read_counts(dump: str) -> Counts:
    """The counts of a call, from what callgrind dumped after `NUM_CALLS`.

    An allocation is the first instruction of a function that allocates: the numbers of calls that callgrind dumps are
    not of the part that is counted alone.
    """
    (total,) = TOTAL.findall(dump)
    entries: dict[str, tuple[int, int]] = {}
    for name, address, times in ALLOCATES.findall(dump):  # of the parts of a function, the first has its entry
        entries[name] = min(entries.get(name, (sys.maxsize, 0)), (int(address, 16), int(times)))
    return Counts(
        instructions=int(total) / hot_paths.NUM_CALLS,
        allocations=sum(times for _, times in entries.values()) / hot_paths.NUM_CALLS,
    )


def read_side(folder: Path) -> Side:
    """What was counted of a revision."""
    problems = json.loads((folder / "result.json").read_text())
    dumps = itertools.count(1)
    return {
        name: problem or read_counts((folder / f"out.{next(dumps)}").read_text()) for name, problem in problems.items()
    }


@pytest.fixture(scope="session")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    """The baseline and this work tree."""
    if not shutil.which("valgrind"):
        pytest.fail("valgrind is not installed: apt-get install valgrind", pytrace=False)
    folder = tmp_path_factory.mktemp("counts")
    with ExitStack() as stack:
        trees = stack.enter_context(baseline_tree(folder / "tree")), ROOT
        started = []
        for role, tree in zip(("before", "after"), trees, strict=True):
            (folder / role).mkdir()
            command = [*CALLGRIND, sys.executable, "-P", hot_paths.__file__, "result.json"]
            with (folder / role / "log").open("w") as log:
                started.append(
                    subprocess.Popen(
                        command,
                        cwd=folder / role,
                        env=os.environ | VARIABLES | {"PYTHONPATH": str(tree)},
                        stdout=log,
                        stderr=log,
                    )
                )
            stack.callback(started[-1].kill)
        for process in started:
            process.wait(LIMIT_S)
    for role, process in zip(("before", "after"), started, strict=True):
        assert process.returncode == 0, (folder / role / "log").read_text()
    return read_side(folder / "before"), read_side(folder / "after")


@pytest.mark.parametrize("path", [each.__name__ for each in hot_paths.PATHS])
def check_counts(sides: tuple[Side, Side], path: str, say: Callable[[str], None]) -> None:
    """A path costs no more instructions and allocations than it did, give or take 1 %."""
    before, after = (side[path] for side in sides)
    assert isinstance(after, Counts), after
    if isinstance(before, str):
        say(f"{path}: {after.instructions:,.0f} instructions; in {BASELINE[:12]} it cannot be counted: {before}")
        return
    for what, was, now in (
        ("instructions", before.instructions, after.instructions),
        ("allocations", before.allocations, after.allocations),
    ):
        line = f"{now / was if was else 1 + now:.3f}  {path}: {was:,.1f} {what}, now {now:,.1f}"
        say(line)
        assert now <= LIMIT * was, line
