"""Sweeps that are interrupted at a random moment, in every way, and taken up again."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.run.sweep_folder import KEPT_PREFIX
from rlbench.results.records import store
from tests.harness.disks import MAY_MOUNT, LimitedFiles, SharedMemory, SmallDisk
from tests.harness.runs import END_LIMIT_S, RunningSweep, wait_until

NUM_PARTS, NUM_SWEEPS = 10, 20
"""Checks, and sweeps of each."""
NUM_CELLS = 2
CELLS = ("--device", "cpu", "--systems", "sync", "--iterations", "2", "--scenario", "faulty/patient", "--seeds", "0..1")
WAYS = ("SIGINT", "SIGTERM", "SIGKILL", "out of disk")
FULL = SmallDisk if MAY_MOUNT else LimitedFiles
NO_ROOM_BYTES = 2048


def digests(sweep: RunningSweep) -> dict[str, str]:
    """What is in the run folders, by path."""
    return {
        str(path.relative_to(sweep.out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in store.run_folders(sweep.out)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def interrupt(sweep: RunningSweep, way: str, disk: SmallDisk | LimitedFiles) -> None:
    """Interrupts a sweep, and waits until nothing of it lives."""
    with suppress(ProcessLookupError):  # it may have ended
        if way == "out of disk":
            disk.fill(NO_ROOM_BYTES, sweep)
        elif way == "SIGINT":
            os.killpg(sweep.process.pid, signal.SIGINT)  # as a terminal does
        else:
            os.kill(sweep.process.pid, signal.Signals[way])
    sweep.end(NUM_CELLS)
    began = time.monotonic()
    wait_until(lambda: not sweep.processes(), "all have ended")
    assert time.monotonic() - began < END_LIMIT_S


def free(disk: SmallDisk | LimitedFiles) -> None:
    """Makes room on a full disk."""
    if isinstance(disk, SmallDisk):
        (disk.folder / "fill").unlink(missing_ok=True)


def take_kept(sweep: RunningSweep, way: str) -> None:
    """Checks that a sweep left no temporary file but, where its disk was full, a whole run that it names; removes that.

    Such a run was over when there was no room left to give it its name (`harness/run/sweep_folder.py`).
    """
    left = list(sweep.scratch.iterdir())
    if way == "out of disk" and len(left) == 1 and left[0].name.startswith(KEPT_PREFIX):
        (kept,) = left[0].iterdir()
        assert f"the run is kept in {kept}" in sweep.stderr, sweep.stderr
        store.load_run(kept)  # raises for a folder that is not whole
        shutil.rmtree(left.pop())
    assert left == []


def sweep_once(folder: Path, way: str, after_s: float, own: Sequence[str]) -> tuple[bool, int]:
    """One sweep, interrupted and taken up again: whether it was interrupted, and how many runs it had finished then.

    `own`: a command that gives it a /dev/shm of the check's own.
    """
    folder.mkdir()
    with FULL(folder / "runs", own) as disk:
        wrapper = disk.wrapper(None)
        with RunningSweep(folder, *CELLS, wrapper=wrapper, seen_at=disk.seen_at) as sweep:
            began = time.monotonic()
            while sweep.process.poll() is None and time.monotonic() - began < after_s:
                time.sleep(0.01)
            was_running = sweep.process.poll() is None
            interrupt(sweep, way, disk)
            free(disk)
            take_kept(sweep, way)
            planned = list(sweep.out.glob("*/sweep.json")) if sweep.out.is_dir() else []
            before = digests(sweep) if planned else {}
        finished = sum(1 for run in (store.read_runs(sweep.out) if planned else []) if run.record.status == "finished")
        options = ("--resume",) if planned else CELLS  # it had not come to write its plan
        with RunningSweep(folder, *options, wrapper=wrapper, seen_at=disk.seen_at) as resumed:
            assert resumed.end(NUM_CELLS) == 0, resumed.stderr
            assert (resumed.processes(), resumed.files_left()) == ([], [])
            after = digests(resumed)
            assert {path: after.get(path) for path in before} == before, "a finished folder has changed"
            runs = store.read_runs(resumed.out)  # raises for a folder that is not whole
            ended = Counter(run.record.cell.seed for run in runs if run.record.status == "finished")
            assert ended == dict.fromkeys(range(NUM_CELLS), 1), ended
            assert all(run.parts for run in runs if run.record.status == "finished")
    return was_running, finished


def whole_s(folder: Path) -> float:
    """How long a sweep takes that nobody interrupts, now."""
    folder.mkdir()
    began = time.monotonic()
    with RunningSweep(folder, *CELLS) as sweep:
        assert sweep.end(NUM_CELLS) == 0, sweep.stderr
    return time.monotonic() - began


@pytest.mark.parametrize("part", range(NUM_PARTS))
def check_interrupted_sweeps_lose_nothing_and_repeat_nothing(
    part: int,
    tmp_path: Path,
    shared_memory: SharedMemory,
    say: Callable[[str], None],
) -> None:
    """However and whenever a sweep is interrupted, --resume ends every cell once, and every folder is whole."""
    generator = np.random.default_rng(part)
    told: Counter[str] = Counter()

    def sweep(number: int, after_s: float) -> str:
        way = WAYS[number % len(WAYS)]
        try:
            interrupted, finished = sweep_once(tmp_path / f"s{number}", way, after_s, shared_memory.enter)
        except (AssertionError, ValueError, OSError) as error:
            raise AssertionError(f"sweep {number}, {way} after {after_s:.2f} s: {error}") from error
        return f"{way}, {finished} cells finished" if interrupted else "not interrupted"

    for number, after_s in enumerate(generator.uniform(0, whole_s(tmp_path / "whole"), NUM_SWEEPS).tolist()):
        told[sweep(number, after_s)] += 1
    say("; ".join(f"{what}: {count}" for what, count in sorted(told.items())))
    assert sum(count for what, count in told.items() if what != "not interrupted") > 0
