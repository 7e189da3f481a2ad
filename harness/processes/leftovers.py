"""Cleans up what the processes of a run leave behind when they are killed: processes, shared memory, temporary files.

Who calls this: the keeper, when a rank is lost and at the end of its run; then the runner, in case the keeper was
killed; then a resumed sweep, in case both were. Head and agents do the same on their nodes. Each call skips what is
already gone.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from rlbench.harness.processes import process, scratch
from rlbench.harness.processes.scratch import Scratch
from rlbench.harness.processes.shared_memory import identified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

KILL_LIMIT_S = 20.0
"""A process that is still there this long after SIGKILL hangs in the kernel."""


def end_run(folder: Path, spare: frozenset[int] = frozenset(), own: Scratch | None = None) -> None:
    """Kills all processes of the run in `folder` below this one, then removes their files and shared memory.

    Children whose pids are in `spare` are left alone, with everything below them; `own` is as for `remove_files`.
    """
    names = {name for child in _children(spare) for below in _family(child) for name in _shared_memory(below)}
    _kill_all(lambda: _children(spare))
    remove_files(folder, names, own)


def end_rank(rank: int, pid: int) -> None:
    """Kills the processes that a dead rank has left, which this process has adopted.

    They are in its process group, whose number is the rank's pid, or have its number in the variable RANK, which every
    program below the rank inherits; orphans of other ranks have another RANK. Their shared memory is removed at the end
    of the run.
    """
    _kill_all(lambda: [child for child in _children(frozenset()) if _is_of_rank(child, rank, pid)])


def remove_files(folder: Path, names: Iterable[tuple[int, str]] = (), own: Scratch | None = None) -> None:
    """Removes the temporary files and shared memory of the run in `folder`, once its processes have ended.

    Args:
        folder: the run's folder; it may come from anybody, and may be gone.
        names: inodes and paths of shared memory that its processes had mapped, in addition to those that they noted.
        own: the run's folder for temporary files, if the caller saw the run begin. If None, it is the one that `folder`
            proves to be the run's, and names that only fit the scenario's patterns are kept.
    """
    if own is None and (claimed := Scratch.of(folder)) is not None:
        own = claimed.without_patterns
        own.remove_elsewhere()  # only the runner would have read it, and that is gone
    if own is not None:
        own.before.remove_new({*names, *own.noted()})
        own.remove()
    with suppress(OSError):
        (folder / scratch.FILE).unlink()


def _kill_all(find: Callable[[], list[psutil.Process]]) -> None:
    """Kills what `find` returns, and everything below, until it returns nothing: a kill may leave new orphans to us."""
    deadline = time.monotonic() + KILL_LIMIT_S
    while found := find():
        if time.monotonic() > deadline:
            pids = ", ".join(str(one.pid) for one in found)
            print(f"processes {pids} cannot be killed; the machine has a fault", file=sys.stderr)  # noqa: T201  for keeper.err
            return
        below = [process_ for one in found for process_ in _family(one)]
        for process_ in below:
            with suppress(psutil.NoSuchProcess):
                process_.kill()
        psutil.wait_procs(below, timeout=1)


def _is_of_rank(one: psutil.Process, rank: int, pid: int) -> bool:
    with suppress(psutil.Error, OSError):  # it may end while we look, and a zombie has no environment left
        return os.getpgid(one.pid) == pid or one.environ().get("RANK") == str(rank)
    return False


def _children(spare: frozenset[int]) -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.pid not in spare]


def _family(child: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [child, *child.children(recursive=True)]
    return []


def _shared_memory(below: psutil.Process) -> set[tuple[int, str]]:
    with suppress(OSError):
        return identified(process.shared_memory_names(below.pid))
    return set()
