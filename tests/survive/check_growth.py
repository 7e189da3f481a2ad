"""A long sweep of tiny cells: what its runner holds must not grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.harness.disks import SharedMemory
from tests.harness.runs import RunningSweep
from tests.lanes import deep

WARM_CELLS = 5
"""Imports and caches are done by then."""
MOST_GROWTH_BYTES = 20e6
LEAST_GROWTH = 3
"""Open files and threads come and go by one or two as the runner reads the machine; a leak has one more each cell."""


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=deep)])
def check_a_sweep_of_tiny_cells_does_not_grow(
    count: int,
    tmp_path: Path,
    shared_memory: SharedMemory,
    say: Callable[[str], None],
) -> None:
    """Open files, threads, temporary files and shared memory do not grow; memory by less than 20 MB."""
    options = ("--device", "cpu", "--systems", "sync", "--scenario", "faulty/patient", "--iterations", "1")
    seen: dict[int, tuple[int, int, int]] = {}
    with RunningSweep(tmp_path, *options, "--seeds", f"0..{count - 1}", wrapper=shared_memory.enter) as sweep:
        runner = psutil.Process(sweep.process.pid)
        while sweep.process.poll() is None:
            time.sleep(0.1)
            partial = next(sweep.out.glob("*/.partial-*"), None)
            with suppress(psutil.Error, ValueError):
                if partial is not None and (number := int(partial.name.split("-")[1])) > WARM_CELLS:
                    fds = min(runner.num_fds() for _ in range(3))  # it opens others for a moment to read them
                    now = (fds, runner.num_threads(), runner.memory_full_info().uss)
                    known = seen.get(number, now)
                    seen[number] = (min(known[0], now[0]), min(known[1], now[1]), max(known[2], now[2]))
                    assert len(list(sweep.scratch.iterdir())) <= 1
        assert sweep.end() == 0, sweep.stderr
        assert [run["status"] for number in range(1, count + 1) for run in sweep.runs(number)] == ["finished"] * count
        assert (sweep.processes(), sweep.files_left()) == ([], [])
    open_files, num_threads, memory = (list(each) for each in zip(*seen.values(), strict=True))
    say(
        f"{count} cells: {min(open_files)} to {max(open_files)} open files, "
        f"{min(num_threads)} to {max(num_threads)} threads, "
        f"{memory[0] / 1e6:.1f} MB at first, {max(memory) / 1e6:.1f} MB at most"
    )
    for each in (open_files, num_threads):
        half = len(each) // 2
        assert max(each[half:]) < max(each[:half]) + LEAST_GROWTH
    assert max(memory) - memory[0] < MOST_GROWTH_BYTES
