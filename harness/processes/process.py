"""How our processes are tied together: no process outlives its parent, and the keeper adopts the orphans of its run.

The kernel kills a process that has called `die_with_parent` when its parent ends, whatever either was doing. This also
holds for a parent that was killed with SIGKILL, and for a child that is stopped or hangs inside a simulator.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import math
import os
import platform
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rlbench.harness.processes.forked import Forked

from rlbench.harness.processes import raised

STORE_VARIABLE = "RLBENCH_STORE_FD"
"""Descriptor of a socket that listens at MASTER_ADDR and MASTER_PORT; the launcher passes it to rank 0."""

SCRATCH_OWNER = ".rlbench-scratch.json"
"""A file that only a run's folder for temporary files has (`harness/processes/scratch.py`)."""

ANSWER_S = 10.0
"""Limit of the wait for signal handlers; each runs within microseconds, but many on a busy machine take longer."""

LATE_S = 0.1
"""Longer than a thread with a core needs for a step; a thread that has not answered by then may never answer."""

USR1 = 1 << (signal.SIGUSR1 - 1)
STANDS_STILL = "TtZX"
"""States of a process that was stopped or has ended."""
CANNOT_ANSWER = "DTt"
"""States of a thread that waits for a disk or a driver, is stopped, or is being traced."""

PF_EXITING = 0x4
SYS_TGKILL = {"x86_64": 234, "ppc64le": 250, "s390x": 241}.get(platform.machine(), 131)
"""Number of the system call `tgkill`, 131 on most architectures; glibc has a function for it only since 2.30."""
PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
PR_SET_CHILD_SUBREAPER = 36


_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent(parent_pid: int) -> None:
    """Makes the kernel kill this process when its parent ends; exits at once if the parent has already ended."""
    end_with_parent(parent_pid, signal.SIGKILL)


def end_with_parent(parent_pid: int, number: signal.Signals) -> None:
    """Like `die_with_parent`, with a signal that this process may heed; a parent is the thread that has started it."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:
        os._exit(1)


def end_keeper(keeper: subprocess.Popen[bytes] | Forked, limit_s: float) -> None:
    """Closes a keeper's stdin, which tells it to end its run; kills the keeper if it has not ended after `limit_s`."""
    assert keeper.stdin is not None
    keeper.stdin.close()
    try:
        keeper.wait(limit_s)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


def leave_to_others(*numbers: signal.Signals) -> None:
    """Makes these signals do nothing here; terminals and Slurm send them to every process they know of.

    It sets a handler and does not ignore them, because programs that this process starts would inherit that.
    """
    for number in numbers:
        signal.signal(number, lambda *_: None)


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends (some simulators start programs)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def sleep_precisely() -> None:
    """Lets sleeps end within microseconds of their time, not the usual 50; emulated times need it."""
    _prctl(PR_SET_TIMERSLACK, 1_000)


def dump_stacks_on_signal(path: Path) -> None:
    """Makes each thread write its own stack to `path` on SIGUSR1, even while Python code is stuck in a call."""
    unfinished = path.with_suffix(".new")  # seeing `path` means that the handler is set: before, SIGUSR1 would kill us
    file = unfinished.open("w", encoding="utf-8")  # open for the life of the process: the handler cannot open files
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
    unfinished.rename(path)


class _Thread(NamedTuple):
    """The state of a thread from the kernel; Linux, Documentation/filesystems/proc.rst, `stat`."""

    state: str
    is_exiting: bool
    is_asked: bool
    """Whether SIGUSR1 is pending for it."""
    is_deaf: bool
    """Whether it blocks SIGUSR1, as a thread does while its handler runs."""


def _numbers(pid: int) -> list[int]:
    """The numbers of a process's threads, its main thread first; empty if the process is gone."""
    with suppress(OSError):
        numbers = (int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
        return sorted(numbers, key=lambda number: (number != pid, number))
    return []


def _look(pid: int, number: int) -> _Thread | None:
    """Reads the state of a thread; None if it is gone. The main thread's number is the pid of its process."""
    with suppress(OSError):
        said = Path(f"/proc/{pid}/task/{number}/stat").read_text("utf-8", "replace")
        state, *fields = said.rpartition(")")[2].split()
        numbers = list(map(int, fields))
        flags, pending, blocked = numbers[5], numbers[27], numbers[28]
        return _Thread(state, bool(flags & PF_EXITING), bool(pending & USR1), bool(blocked & USR1))
    return None


def is_ending(pid: int) -> bool:
    """Whether a process is exiting or has exited; the kernel says so before it closes the process's connections."""
    main = _look(pid, pid)
    return main is None or main.state in "ZX" or main.is_exiting


class StackDump:
    """Asks the threads of a process for their stacks, one after the other, starting with its main thread.

    A thread that read the frames of other threads could read some that change meanwhile, for instance when a stopped
    process goes on; that cuts the stacks short or crashes the process. If two threads write at once, one is left out.
    So each thread gets its own signal and writes only its own frames. The kernel shows the signal as pending until the
    thread takes it, and as blocked while the handler runs. The growth of the file tells less: a stack is written word
    by word, and the thread may lose its core meanwhile.

    In a process that was stopped, the main thread writes where it stood; the others go on until it is their turn.
    """

    def __init__(self, pid: int, path: Path) -> None:
        """Begins to ask a process that has set `path` with `dump_stacks_on_signal`."""
        self.pid = pid
        self._path = path
        self._steps = self._ask()
        next(self._steps, None)  # so that a stopped process has the signal before it goes on

    def is_over(self) -> bool:
        """Whether all stacks are written, or no more will come because the process has ended or was stopped.

        If not, it asks for more; call it again soon.
        """
        main = _look(self.pid, self.pid)
        return main is None or main.state in STANDS_STILL or next(self._steps, True)

    def _ask(self) -> Iterator[bool]:
        """Asks each thread in turn, and yields False until it has written.

        Threads that block the signal are asked last: some block all signals for good, others only while they start a
        thread, say.
        """
        to_ask, ends_at = _numbers(self.pid), math.inf
        while to_ask and time.monotonic() < ends_at:
            deaf = list[int]()
            for number in to_ask:
                thread, num_bytes = _look(self.pid, number), self._num_bytes()
                if thread is None:
                    continue
                if thread.is_deaf:
                    deaf.append(number)
                    continue
                _libc.syscall(SYS_TGKILL, self.pid, number, signal.SIGUSR1)
                yield False
                yield from self._await(number, num_bytes)
            yield False
            to_ask, ends_at = deaf, min(ends_at, time.monotonic() + LATE_S)

    def _await(self, number: int, num_bytes: int) -> Iterator[bool]:
        """Yields False until a thread has written, or is unlikely to write soon."""
        asked_at, silent_at, times_asleep = time.monotonic(), math.inf, 0
        while True:
            has_grown = self._num_bytes() > num_bytes  # first: once it has begun to write, the thread is deaf
            thread, now = _look(self.pid, number), time.monotonic()
            if thread is None or (thread.is_asked and thread.state in CANNOT_ANSWER and now > asked_at + LATE_S):
                return
            if not thread.is_asked and not thread.is_deaf:
                silent_at, times_asleep = min(silent_at, now), times_asleep + (thread.state == "S")
                # A thread without Python frames writes nothing and goes back to sleep or computes. Or its handler is
                # just about to run, which takes microseconds.
                if has_grown or times_asleep > 1 or now > silent_at + LATE_S:
                    return
            yield False

    def _num_bytes(self) -> int:
        with suppress(OSError):  # the folder may be removed meanwhile
            return self._path.stat().st_size
        return 0


def await_stacks(dumps: Iterable[StackDump]) -> None:
    """Blocks until all dumps are over, for `ANSWER_S` at most."""
    deadline = time.monotonic() + ANSWER_S
    while (dumps := [dump for dump in dumps if not dump.is_over()]) and time.monotonic() < deadline:
        time.sleep(0.002)


def leave_error(path: Path, error: BaseException, **more: object) -> None:
    """Writes an exception to `path` for the process that watches this one: a line, its traceback and its time.

    The time is on `perf_counter`, not the wall clock. `more` is added to the JSON. Raises OSError, but nothing because
    of what the exception itself does.
    """
    left = {"error": raised.in_a_line(error), "traceback": raised.whole(error), "at_s": time.perf_counter(), **more}
    unfinished = path.with_suffix(".new")  # this process may be killed at any moment, and readers want a whole file
    unfinished.write_text(json.dumps(left), encoding="utf-8")
    unfinished.rename(path)


def core_wait_s() -> float | None:
    """Seconds that threads of this process were ready to run but had no core; None if the kernel does not say.

    Source: the second number of `schedstat`; Linux, Documentation/scheduler/sched-stats.rst.
    """
    used_ns = waited_ns = 0
    try:
        for task in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
                used, waited, *_ = map(int, (task / "schedstat").read_text(encoding="utf-8").split())
                used_ns, waited_ns = used_ns + used, waited_ns + waited
    except (OSError, ValueError):
        return None
    return waited_ns / 1e9 if used_ns else None  # a kernel that does not count gives 0 everywhere


def note_shared_memory(label: str, pids: Iterable[int]) -> None:
    """Notes in a file `shm-<label>.txt` what processes have mapped in /dev/shm, to be removed when the run ends.

    The file lies in the run's folder for temporary files, where no other user can write. If TMPDIR is no such folder,
    as under a user's own torchrun, nothing cleans up after the run, so nothing is noted.
    """
    folder = Path(tempfile.gettempdir())
    if not (folder / SCRATCH_OWNER).exists():
        return
    lines = []
    for pid in pids:
        with suppress(OSError):  # the process has ended
            for name in shared_memory_names(pid):
                with suppress(OSError):  # the name was removed
                    lines.append(b"%d %s\n" % (Path(name).lstat().st_ino, os.fsencode(name)))
    if lines:
        with (folder / f"shm-{label}.txt").open("ab") as file:
            file.writelines(lines)


def how_it_ended(returncode: int) -> str:
    """How a process ended, in words; negative codes are signals, as in `subprocess`."""
    if returncode >= 0:
        return f"exited with {returncode}"
    known = {member.value: member.name for member in signal.Signals}
    return f"was killed by {known.get(-returncode, f'signal {-returncode}')}"


def shared_memory_names(pid: int) -> list[str]:
    """Names under /dev/shm that a process has mapped; a simulator that is killed cannot remove its names itself."""
    names = set()
    for line in Path(f"/proc/{pid}/maps").read_bytes().split(b"\n"):  # paths may be any bytes
        path = line[73:].strip().removesuffix(b" (deleted)")
        if path.startswith(b"/dev/shm/"):
            names.add(os.fsdecode(path))
    return sorted(names)
