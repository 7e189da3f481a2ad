"""The command of a trainer as a child of its rank, with all processes that come of it.

What ends it: the rank, when the budget is spent or something is wrong; the kernel, when the rank is killed; and the
keeper kills whatever is left below the run. Processes whose parent ends become the rank's own children, so that one
that left its process group is found; what they have mapped of /dev/shm is noted for the keeper before they are killed.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from harness.processes import process
from systems.external.output import Pump

PROCESSES_FILE = "processes-trainer.txt"
STACKS_LIMIT_S = 20.0
"""For the stacks of all of its processes."""
KILL_LIMIT_S = 20.0
"""A process that has not died so long after SIGKILL hangs in the kernel."""
MIB = 2**20
LONGEST_COMMAND = 200


class TrainerFailed(RuntimeError):  # noqa: N818  says what happened, as BrokenPipeError's kin do
    """A trainer ended as it should not, or did what it must not."""


class ItsTraceback(Exception):  # noqa: N818  it is what a trainer printed
    """The first traceback in a trainer's output; as a cause, it comes first in the run's."""


class Child:
    """A trainer's processes. Call everything from the thread that made it: the kernel ends it with that thread."""

    def __init__(
        self, command: Sequence[str], folder: str, variables: Mapping[str, str], most_output_bytes: int
    ) -> None:
        """Raises TrainerFailed when the command cannot be started."""
        process.adopt_orphans()
        parent = os.getpid()
        try:
            self._child = subprocess.Popen(  # noqa: S603  it is what the user asked for
                command,
                cwd=folder,
                env={"PYTHONUNBUFFERED": "1", **variables},  # what it has printed is not lost when it is ended
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=lambda: process.die_with_parent(parent),  # noqa: PLW1509  no other thread runs yet
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise TrainerFailed(f"{command[0]}: cannot be started: {error}") from None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        each = most_output_bytes // 2
        self._pumps = (
            Pump(self._child.stderr, sys.stderr.fileno(), each),
            Pump(self._child.stdout, sys.stdout.fileno(), each),
        )
        self._end = select.poll()
        self._end.register(os.pidfd_open(self._child.pid), select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Waits until the command has ended, for so long at most; whether it has. What it started may live on."""
        return bool(self._end.poll(seconds * 1000))

    @property
    def returncode(self) -> int | None:
        """Of the command; None while it lives."""
        return self._child.poll()

    def num_processes(self) -> int:
        """The command and all that came of it."""
        return len(psutil.Process().children(recursive=True))

    @property
    def has_raised(self) -> bool:
        """Whether it has printed a whole traceback."""
        return any(pump.traceback.last_line for pump in self._pumps)

    def leave_stacks(self, folder: Path) -> None:
        """Writes what its processes are doing: a line for each, and its stacks where py-spy is installed."""
        found, spy = psutil.Process().children(recursive=True), shutil.which("py-spy")
        with suppress(OSError):  # the disk may be full
            (folder / PROCESSES_FILE).write_text("".join(map(_described, found)), "utf-8", "backslashreplace")
            deadline = time.monotonic() + STACKS_LIMIT_S
            for one in found if spy else ():
                if (left := deadline - time.monotonic()) > 0 and (stacks := _stacks(str(spy), one.pid, left)):
                    (folder / f"stacks-trainer-{one.pid}.txt").write_text(stacks, encoding="utf-8")

    def end(self, label: str) -> None:
        """Kills all of its processes, and passes on the rest of their output. May be called twice.

        Args:
            label: for the names of the shared memory that they had mapped; the keeper removes that.
        """
        deadline = time.monotonic() + KILL_LIMIT_S
        while (found := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
            process.note_shared_memory(label, [one.pid for one in found])
            for one in found:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(found, timeout=1)
        for pump in self._pumps:
            pump.end()

    def failure(self, what: str) -> TrainerFailed:
        """What went wrong, with the first traceback of the output; call it after `end`, and raise it."""
        traceback = next((pump.traceback for pump in self._pumps if pump.traceback.text), None)
        if traceback is None:
            return TrainerFailed(what)
        error = TrainerFailed(f"{what}: {traceback.last_line}" if traceback.last_line else what)
        error.__cause__ = ItsTraceback(f"first in its output:\n\n{traceback.text}")
        return error


def _described(one: psutil.Process) -> str:
    """A line for a process: its number, its parent's, its state and its command."""
    try:
        with one.oneshot():
            return f"{one.pid:>8} {one.ppid():>8} {one.status():>12}  {shlex.join(one.cmdline())[:LONGEST_COMMAND]}\n"
    except psutil.Error:
        return f"{one.pid:>8} has ended\n"


def _stacks(spy: str, pid: int, limit_s: float) -> str:
    """The stacks of the Python threads of a process, as py-spy sees them; empty where it sees none."""
    try:
        done = subprocess.run(  # noqa: S603  py-spy of the user's own
            [spy, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=limit_s,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
