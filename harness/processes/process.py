"""How our processes are tied together: nobody outlives its parent, and orphans of a run come to its keeper.

A process that calls `die_with_parent` is killed by the kernel when its parent ends, whatever either was doing; this
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

    from harness.processes.forked import Forked

from harness.processes import raised

STORE_VARIABLE = "RLBENCH_STORE_FD"
"""Descriptor of a socket that listens at MASTER_ADDR and MASTER_PORT; rank 0 has it from the launcher."""

SCRATCH_OWNER = ".rlbench-scratch.json"
"""A file that a run's folder for temporary files has, and no other (`harness/processes/scratch.py`)."""

ANSWER_S = 10.0
"""Handlers of signals run within microseconds, and are waited for to their ends; many on a busy machine take longer."""

LATE_S = 0.1
"""Longer than it takes a thread that has a core to do a step; who does not answer by then may never."""

USR1 = 1 << (signal.SIGUSR1 - 1)
STANDS_STILL = "TtZX"
"""States of a process that was stopped, or has ended."""
CANNOT_ANSWER = "DTt"
"""States of a thread that waits for a disk or a driver, or that somebody looks into."""

PF_EXITING = 0x4
SYS_TGKILL = {"x86_64": 234, "ppc64le": 250, "s390x": 241}.get(platform.machine(), 131)
"""Most architectures have the last; the C library has a function for it since glibc 2.30 only."""
PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
PR_SET_CHILD_SUBREAPER = 36


_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent(parent_pid: int) -> None:
    """Has the kernel kill this process when its parent ends; exits at once if that has already happened."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def end_keeper(keeper: subprocess.Popen[bytes] | Forked, limit_s: float) -> None:
    """Has a keeper end its run, by the end of its stdin, and kills it when it does not end."""
    assert keeper.stdin is not None
    keeper.stdin.close()
    try:
        keeper.wait(limit_s)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


def leave_to_others(*numbers: signal.Signals) -> None:
    """Does nothing on these signals, which terminals and Slurm send to every process they know of.

    With a handler, not ignored: what this process starts would inherit that.
    """
    for number in numbers:
        signal.signal(number, lambda *_: None)


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends (some simulators start programs)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def sleep_precisely() -> None:
    """Lets sleeps end within microseconds of their time, instead of the usual 50; emulated times need it."""
    _prctl(PR_SET_TIMERSLACK, 1_000)


def dump_stacks_on_signal(path: Path) -> None:
    """Has each thread write its own stack to `path` on SIGUSR1, also while Python code is stuck in a call."""
    unfinished = path.with_suffix(".new")  # the signal would end the process of who saw the file before the handler
    file = unfinished.open("w", encoding="utf-8")  # kept open for its life: the handler cannot open files
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
    unfinished.rename(path)


class _Thread(NamedTuple):
    """What the kernel says of a thread; Linux, Documentation/filesystems/proc.rst, `stat`."""

    state: str
    is_exiting: bool
    is_asked: bool
    """Whether SIGUSR1 waits for it."""
    is_deaf: bool
    """Whether it blocks SIGUSR1, as it does while its handler runs."""


def _numbers(pid: int) -> list[int]:
    """Of the threads of a process, its main one first; none when it is gone."""
    with suppress(OSError):
        numbers = (int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
        return sorted(numbers, key=lambda number: (number != pid, number))
    return []


def _look(pid: int, number: int) -> _Thread | None:
    """Looks at a thread, of which the main one has the number of its process; None when it is gone."""
    with suppress(OSError):
        said = Path(f"/proc/{pid}/task/{number}/stat").read_text("utf-8", "replace")
        state, *fields = said.rpartition(")")[2].split()
        numbers = list(map(int, fields))
        flags, pending, blocked = numbers[5], numbers[27], numbers[28]
        return _Thread(state, bool(flags & PF_EXITING), bool(pending & USR1), bool(blocked & USR1))
    return None


def is_ending(pid: int) -> bool:
    """Whether the kernel takes a process apart, or has: before it closes a connection of the process it says so."""
    main = _look(pid, pid)
    return main is None or main.state in "ZX" or main.is_exiting


class StackDump:
    """Stacks that a process was asked for, of one thread after the other; its main thread is the first.

    A thread that read the frames of others would read some that change meanwhile, as when a stopped process goes on:
    that breaks the stacks off, or the process. And of two that write at once, one is left out. So each has the signal
    for itself, and writes its own frames alone. While the signal waits for it, the kernel says that it is pending, and
    while the handler runs that the thread blocks it. How the file grows says less: a stack is written word by word, and
    who writes it may lose its core meanwhile.

    Of a process that was stopped, the main thread writes where it stood; the others go on until it is their turn.
    """

    def __init__(self, pid: int, path: Path) -> None:
        """Asks a process for which `dump_stacks_on_signal` has opened `path`."""
        self.pid = pid
        self._path = path
        self._steps = self._ask()
        next(self._steps, None)  # a stopped process has the signal before it goes on

    def is_over(self) -> bool:
        """Whether all is written, or nothing more comes: the process has ended, or a signal has stopped it.

        Else it goes on; call it again soon.
        """
        main = _look(self.pid, self.pid)
        return main is None or main.state in STANDS_STILL or next(self._steps, True)

    def _ask(self) -> Iterator[bool]:
        """Asks each thread, and yields False until it has written.

        Some block all signals for good; others for a moment, while they begin a thread, say: they are asked last.
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
        """Yields False until a thread has written, or will not soon."""
        asked_at, silent_at, times_asleep = time.monotonic(), math.inf, 0
        while True:
            has_grown = self._num_bytes() > num_bytes  # first: once it has begun to write, the thread is deaf
            thread, now = _look(self.pid, number), time.monotonic()
            if thread is None or (thread.is_asked and thread.state in CANNOT_ANSWER and now > asked_at + LATE_S):
                return
            if not thread.is_asked and not thread.is_deaf:
                silent_at, times_asleep = min(silent_at, now), times_asleep + (thread.state == "S")
                # Without Python frames it writes nothing: it sleeps again, or computes. Its handler may also be about
                # to run; that takes microseconds.
                if has_grown or times_asleep > 1 or now > silent_at + LATE_S:
                    return
            yield False

    def _num_bytes(self) -> int:
        with suppress(OSError):  # the folder may be removed meanwhile
            return self._path.stat().st_size
        return 0


def await_stacks(dumps: Iterable[StackDump]) -> None:
    """Blocks until all are over, for `ANSWER_S` at most."""
    deadline = time.monotonic() + ANSWER_S
    while (dumps := [dump for dump in dumps if not dump.is_over()]) and time.monotonic() < deadline:
        time.sleep(0.002)


def leave_error(path: Path, error: BaseException, **more: object) -> None:
    """Leaves an exception for whoever looks after this process: a line, its traceback, and when, on no wall clock.

    Raises OSError, and nothing because of what the exception is. `more` is left beside it, as JSON.
    """
    left = {"error": raised.in_a_line(error), "traceback": raised.whole(error), "at_s": time.perf_counter(), **more}
    unfinished = path.with_suffix(".new")  # it is read while this process may be killed
    unfinished.write_text(json.dumps(left), encoding="utf-8")
    unfinished.rename(path)


def core_wait_s() -> float | None:
    """Seconds for which threads of this process were ready to run and had no core; None where the kernel does not say.

    Linux, Documentation/scheduler/sched-stats.rst: the second number of `schedstat`.
    """
    used_ns = waited_ns = 0
    try:
        for task in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended since
                used, waited, *_ = map(int, (task / "schedstat").read_text(encoding="utf-8").split())
                used_ns, waited_ns = used_ns + used, waited_ns + waited
    except (OSError, ValueError):
        return None
    return waited_ns / 1e9 if used_ns else None  # where the kernel does not count, all is 0


def note_shared_memory(label: str, pids: Iterable[int]) -> None:
    """Notes what processes have mapped of /dev/shm, in a file `shm-<label>.txt`: it is removed with the run.

    The file lies in the run's folder for temporary files, where nobody else can write. Where TMPDIR is not one, as
    under anybody else's torchrun, nobody cleans up, and nothing is noted.
    """
    folder = Path(tempfile.gettempdir())
    if not (folder / SCRATCH_OWNER).exists():
        return
    lines = []
    for pid in pids:
        with suppress(OSError):  # it has ended
            for name in shared_memory_names(pid):
                with suppress(OSError):  # it has no name any more
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
    """Names under /dev/shm that a process has mapped; a simulator that is killed cannot remove its own."""
    names = set()
    for line in Path(f"/proc/{pid}/maps").read_bytes().split(b"\n"):  # paths may be any bytes
        path = line[73:].strip().removesuffix(b" (deleted)")
        if path.startswith(b"/dev/shm/"):
            names.add(os.fsdecode(path))
    return sorted(names)
