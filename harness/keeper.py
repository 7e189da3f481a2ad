"""The keeper: `python -m harness.keeper FOLDER`, the process at the root of a run's process tree.

Who writes: the keeper alone writes what `harness/outcome.py` describes. Who reads: the runner. What blocks: one
`poll` on the ranks' ends (pidfds) and on stdin, whose end of file says that the runner is gone or wants the run ended.
What frees it: either, or the time limit. A rank that dies ends the run, unless the system says that it survives that
(`Traits.survives_lost_rank`) and another rank goes on: the keeper then kills what the dead one left, and waits on.
However the run ends, the keeper then kills everything below itself: ranks, environment workers, and programs that a
simulator started, which become the keeper's children when their parent is killed; and it removes temporary files, and
shared memory that its processes had mapped or whose names they left in `shm-*.txt`. If the keeper itself is killed, the
kernel kills the ranks, and the runner sweeps what is left.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from harness import leftovers, process
from harness.launch import local
from harness.meter_file import MeterFile, meter_path
from harness.outcome import LostRank, Outcome
from harness.plan import Cell
from harness.traits import Traits

END_LIMIT_S = 10.0
"""Ranks that go in step have so long to exit once the first has."""
STACKS_S = 0.5


class Keeper:
    """Watches one run from its start to its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cell = Cell.from_json((folder / "cell.json").read_text())
        self._traits = Traits.read(folder)
        self._lost: list[LostRank] = []
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._poll = select.poll()

    def keep(self) -> Outcome:
        """Runs the cell to its end."""
        process.adopt_orphans()
        deadline = time.monotonic() + self._cell.time_limit_s
        try:
            self._ranks = local.launch(self._folder, self._cell.gpus)
            return replace(self._watch(deadline), lost=tuple(self._lost))
        finally:
            leftovers.end_run(self._folder)

    def _watch(self, deadline: float) -> Outcome:
        fds = {os.pidfd_open(rank.pid): number for number, rank in enumerate(self._ranks)}
        for fd in fds:
            self._poll.register(fd, select.POLLIN)
        self._poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
        while fds:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return self._timed_out(sorted(fds.values()))
            for fd, _ in self._poll.poll(min(left_s, 3600) * 1000):
                if fd == sys.stdin.fileno():
                    return Outcome("interrupted", "the harness ended the run")
                self._poll.unregister(fd)
                os.close(fd)
                number = fds.pop(fd)
                self._ranks[number].wait()
            codes = {number: rank.returncode for number, rank in enumerate(self._ranks)}
            known = {lost.rank for lost in self._lost}
            failed = [number for number, code in codes.items() if code and number not in known]
            if failed and not (fds and self._traits.survives_lost_rank):
                return self._failed(failed)
            for number in failed:
                self._lose(number)
            if self._traits.in_step and 0 in codes.values():
                deadline = min(deadline, time.monotonic() + END_LIMIT_S)
        return Outcome("finished")

    def _timed_out(self, alive: list[int]) -> Outcome:
        self._dump_stacks()
        running = ", ".join(map(str, alive))
        if self._traits.in_step and any(rank.returncode == 0 for rank in self._ranks):
            return Outcome("failed", f"rank {running} did not exit within {END_LIMIT_S:g} s of the others")
        return Outcome(
            "timed-out", f"not over after {self._cell.time_limit_s:g} s (--time-limit); stacks are in the folder"
        )

    def _lose(self, number: int) -> None:
        """Kills what a rank that has ended before its time left, and notes it."""
        leftovers.end_rank(number)
        path, error = meter_path(self._folder, number), self._folder / f"error-rank{number}.json"
        lost = LostRank(
            rank=number,
            how=f"raised {json.loads(error.read_text())['error']}"
            if error.exists()
            else process.how_it_ended(self._ranks[number].returncode),
            iteration=MeterFile(path, writable=False).count(0, "iteration") if path.exists() else 0,
        )
        lost.leave(self._folder)
        self._lost.append(lost)

    def _failed(self, numbers: list[int]) -> Outcome:
        """The rank that was killed, or that raised first; the errors of the others follow from it."""
        killed = [number for number in numbers if self._ranks[number].returncode < 0]
        paths = [self._folder / f"error-rank{number}.json" for number in range(len(self._ranks))]
        left = [path for path in paths if path.exists()]
        if killed or not left:
            number = (killed or numbers)[0]
            how = process.how_it_ended(self._ranks[number].returncode)
            return Outcome("failed", f"rank {number} {how}; stderr.txt may say more")
        first = min(left, key=lambda path: path.stat().st_mtime_ns)
        error = json.loads(first.read_text())
        rank = first.stem.removeprefix("error-rank")
        return Outcome("failed", f"rank {rank}: {error['error']}", error["traceback"])

    def _dump_stacks(self) -> None:
        """Has every process of ours write its stacks to its `stacks-*.txt`."""
        for rank in range(len(self._ranks)):
            path = meter_path(self._folder, rank)
            pids = {self._ranks[rank].pid} if (self._folder / f"stacks-rank{rank}.txt").exists() else set()
            if path.exists():
                meter = MeterFile(path, writable=False)
                pids |= {meter.count(block, "pid") for block in range(1, 1 + meter.num_envs)}
            below = {child.pid for child in psutil.Process().children(recursive=True)}
            for pid in pids & below:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
        time.sleep(STACKS_S)  # the handlers run within microseconds, unless a process is stopped


def main(folder: Path) -> None:
    """Keeps the run in `folder` and leaves its outcome."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what they mean comes through stdin
    lock = os.open(folder, os.O_RDONLY)  # held to the end: `Sweep.remove_partial` waits for it
    fcntl.flock(lock, fcntl.LOCK_EX)
    Keeper(folder).keep().leave(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
