"""What the processes of a run leave behind when they are killed: other processes, shared memory, temporary files.

Who calls this: the keeper when a rank is lost and at the end of its run, then the runner, for the case that the keeper
was killed, and whoever resumes a sweep, for the case that both were. What was removed already is passed over.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from harness import process
from harness.shared_memory import Before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KILL_LIMIT_S = 20.0
"""A process that has not died so long after SIGKILL hangs in the kernel."""
SCRATCH_LINK = "tmp"
BEFORE = "shared-memory.json"
LONGEST_TMPDIR = 50
"""Characters; a socket's path may have 107, of which multiprocessing takes up to 45 with its own folder and name."""
SHORT_TMPDIR = "/tmp"  # noqa: S108  mkdtemp makes a folder there that only we may enter


def make_scratch(folder: Path, before: Before) -> Path:
    """Makes the folder for temporary files of the run in `folder`; its processes have it as TMPDIR.

    It has a short path of its own, since sockets will lie there; a link in the run's folder says where it is. Its first
    file says what shared memory there was before the run.
    """
    usual = tempfile.gettempdir()
    scratch = Path(tempfile.mkdtemp(prefix="rlb-", dir=usual if len(usual) <= LONGEST_TMPDIR else SHORT_TMPDIR))
    before.leave(scratch / BEFORE)
    (folder / SCRATCH_LINK).symlink_to(scratch)
    return scratch


def end_run(folder: Path, spare: frozenset[int] = frozenset()) -> None:
    """Kills all processes of the run in `folder` below this one, and removes what they can no longer remove.

    Children whose process numbers are in `spare` are left alone, with all that is below them.
    """
    names = {name for child in _children(spare) for below in _family(child) for name in _shared_memory(below)}
    _kill_all(lambda: _children(spare))
    remove_files(folder, names)


def end_rank(rank: int) -> None:
    """Kills what a rank that is dead has left: orphans that are ours now, and that have its number as their RANK.

    They inherit that variable, whoever started them; orphans of other ranks' simulators have another one. What they
    shared is removed at the end of the run.
    """
    _kill_all(lambda: [child for child in _children(frozenset()) if _is_of_rank(child, rank)])


def remove_files(folder: Path, names: Iterable[str] = ()) -> None:
    """Removes temporary files and shared memory of the run in `folder`, whose processes have ended.

    `names`: of shared memory that its processes had mapped, beside those that they wrote down.
    """
    left = {name for listing in folder.glob("shm-*.txt") for name in listing.read_text().splitlines()}
    with suppress(OSError, ValueError, TypeError):  # removed already, or never written whole
        Before.read(folder / SCRATCH_LINK / BEFORE).remove_new({*names, *left})
    with suppress(FileNotFoundError):
        shutil.rmtree((folder / SCRATCH_LINK).readlink(), ignore_errors=True)
        (folder / SCRATCH_LINK).unlink()


def _kill_all(find: Callable[[], list[psutil.Process]]) -> None:
    """Kills what `find` finds, and all below it, until it finds nothing: what is killed makes its own children ours."""
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


def _is_of_rank(one: psutil.Process, rank: int) -> bool:
    with suppress(psutil.Error, OSError):  # it may end while we look, and a zombie has no environment left
        return one.environ().get("RANK") == str(rank)
    return False


def _children(spare: frozenset[int]) -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.pid not in spare]


def _family(child: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [child, *child.children(recursive=True)]
    return []


def _shared_memory(below: psutil.Process) -> list[str]:
    with suppress(OSError):
        return process.shared_memory_names(below.pid)
    return []
