"""Leaves what the processes of a run are doing in its folder when the run has gone wrong.

The keeper calls this before it ends a run that has gone wrong, or a rank that stands still. Threads of ranks and
environment workers write their own stacks to `stacks-….txt` when they are asked (`process.StackDump`). A process that a
signal has stopped is woken for it. `processes.txt` lists all processes, programs that a simulator started included,
with what the kernel says of them. A call blocks for at most twice `process.ANSWER_S`.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from rlbench.harness.processes import process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlbench.harness.metering.meter_file import MeterFile

PROCESSES_FILE = "processes.txt"
STOPPED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
MIB = 2**20


def label_processes(ranks: Mapping[int, int], meters: Mapping[int, MeterFile]) -> dict[int, str]:
    """Labels of the processes of a run, by process number.

    Args:
        ranks: the process number of each living rank.
        meters: the meter of each rank that has one.
    """
    labels = {pid: f"rank{rank}" for rank, pid in ranks.items()}
    for rank, meter in meters.items():
        for env in reversed(range(meter.num_envs)):  # a process with several environments is named after the first
            if (pid := meter.count(1 + env, "pid")) and pid not in ranks.values():
                labels[pid] = f"rank{rank}-env{env}"
    return labels


def in_words(label: str) -> str:
    """A label in words for people."""
    return f"environment worker {label}" if "-" in label else label.replace("rank", "rank ")


def leave_stacks(folder: Path, labels: Mapping[int, str]) -> list[str]:
    """Writes `processes.txt`, and has every labelled process write its stacks; call it in the root of the run.

    Wakes, of the processes that a signal has stopped, only those that have a label. Returns the labels of all that
    were stopped.
    """
    below = {one.pid: one for one in psutil.Process().children(recursive=True)}
    stopped = [pid for pid, one in below.items() if _status(one) in STOPPED]
    with suppress(OSError):  # the disk may be full
        lines = [_describe(one, labels) for one in below.values()]
        (folder / PROCESSES_FILE).write_text("\n".join([TITLES, *lines]) + "\n", "utf-8", "backslashreplace")
    asked = {pid: folder / f"stacks-{label}.txt" for pid, label in labels.items() if pid in below}
    asked = {pid: path for pid, path in asked.items() if path.exists()}  # the others have no handler yet
    dumps = [process.StackDump(pid, path) for pid, path in asked.items() if below[pid].is_running()]
    process.await_stacks(dump for dump in dumps if dump.pid not in stopped)
    standing = [dump for dump in dumps if dump.pid in stopped]
    for dump in standing:
        with suppress(psutil.NoSuchProcess):  # psutil checks first that the number is still that process's
            below[dump.pid].send_signal(signal.SIGCONT)
    process.await_stacks(standing)
    return sorted(labels.get(pid, below[pid].name()) for pid in stopped)


TITLES = f"{'pid':>8} {'parent':>8} {'state':>12} {'threads':>7} {'cpu s':>8} {'MiB':>7} {'waits in':<24} what"


def _describe(one: psutil.Process, labels: Mapping[int, str]) -> str:
    """One line of `processes.txt`."""
    try:
        with one.oneshot():
            cpu = one.cpu_times()
            numbers = f"{one.pid:>8} {one.ppid():>8} {one.status():>12} {one.num_threads():>7}"
            used = f"{cpu.user + cpu.system:>8.1f} {one.memory_info().rss // MIB:>7}"
            what = labels.get(one.pid) or " ".join(one.cmdline()) or one.name()
    except psutil.Error:  # it may have ended by now, or be a zombie
        return f"{one.pid:>8} has ended"
    return f"{numbers} {used} {_waits_in(one.pid):<24} {what}"


def _waits_in(pid: int) -> str:
    """The kernel function that a process sleeps in; empty where only root may see it."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text(encoding="utf-8").strip("0\n")
    return ""


def _status(one: psutil.Process) -> str:
    with suppress(psutil.Error):
        return str(one.status())
    return ""
