"""A trainer's command as a child of its rank, with all processes that the command starts.

The rank ends it when the budget is spent or something is wrong, the kernel ends it when the rank is killed, and the
keeper kills whatever is left below the run. A process whose parent ends becomes the rank's own child, so the rank also
finds one that left its process group. Before it kills them, it notes what they have mapped of /dev/shm for the keeper.
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

from rlbench.harness.processes import process
from rlbench.systems.external.output import Pump

PROCESSES_FILE = "processes-trainer.txt"
STACKS_LIMIT_S = 20.0
"""Seconds in which the stacks of all of the trainer's processes are taken."""
KILL_LIMIT_S = 20.0
"""A process that is not dead this many seconds after SIGKILL hangs in the kernel."""
MIB = 2**20
LONGEST_COMMAND = 200


class TrainerFailed(RuntimeError):  # noqa: N818  says what happened, as BrokenPipeError's kin do
    """A trainer ended as it should not, or did what it must not."""


class ItsTraceback(Exception):  # noqa: N818  it is what a trainer printed
    """The first traceback in a trainer's output; as the error's cause, it comes first in the run's traceback."""


class Child:
    """A trainer's processes. Make it and use it in one thread: the kernel ends the command when that thread ends."""

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
                env={"PYTHONUNBUFFERED": "1", **variables},  # so that nothing printed is lost when it is killed
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
        """Waits at most `seconds` for the command to end; returns whether it has. What it started may live on."""
        return bool(self._end.poll(seconds * 1000))

    @property
    def returncode(self) -> int | None:
        """The command's exit code; None while it runs."""
        return self._child.poll()

    def num_processes(self) -> int:
        """Number of the trainer's processes: the command and all that it started."""
        return len(psutil.Process().children(recursive=True))

    @property
    def has_raised(self) -> bool:
        """Whether the trainer has printed a whole traceback."""
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
            label: names the file that lists the shared memory that they had mapped; the keeper removes that memory.
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
        """The error to raise: what went wrong, with the first traceback of the output. Call it after `end`."""
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
