"""The keeper: the process at the root of a run's process tree, forked from a zygote (`harness/run/zygote.py`).

In a run on several machines, the runner's keeper is the head (`harness/launch/nodes/head.py`), and each node has a
keeper like this one under an agent that takes the runner's place. Runner and agent then start it as a program,
`python -m rlbench.harness.run.keeper FOLDER`.

The keeper alone writes what `harness/processes/outcome.py` describes; the runner reads it. The keeper blocks in one
`poll` on the ranks' ends (pidfds) and on stdin, whose end of file says that the runner is gone or wants the run ended.
Either of them frees it, and so does the time limit. Every second it checks whether the run gets on, and every few
seconds how much memory it takes (`harness/run/watch.py`).

A rank that dies ends the run, unless the system survives that (`Traits.survives_lost_rank`), all ranks had begun and
another one goes on: then the keeper kills what the dead rank left and waits on. It kills a rank of such a system that
stands still. When a run goes wrong, its living processes leave their stacks (`harness/run/stacks.py`).

However the run ends, the keeper then kills everything below itself: ranks, environment workers, and programs that a
simulator started, which become the keeper's children when their parent is killed. It also removes temporary files, and
shared memory that its processes had mapped or noted. If the keeper itself is killed, the kernel kills the ranks, and
the runner removes the rest. The run's folder may be renamed or removed meanwhile (`harness/processes/held.py`).
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from rlbench.harness.contract.traits import Traits
from rlbench.harness.launch import local, torchrun
from rlbench.harness.launch.nodes.launches import Launch, NodeSeat
from rlbench.harness.metering.meter_file import MeterFiles
from rlbench.harness.plan.cells import Cell
from rlbench.harness.processes import leftovers, process
from rlbench.harness.processes.forked import Forked
from rlbench.harness.processes.held import CELL_FILE, KeptRun
from rlbench.harness.processes.outcome import LostRank, Outcome, is_consequence, outcome_of
from rlbench.harness.processes.scratch import Scratch
from rlbench.harness.processes.told import read_told
from rlbench.harness.run import stacks, watch

if TYPE_CHECKING:
    from collections.abc import Container

END_LIMIT_S = 10.0
"""Seconds that ranks that go in step have to exit, once the first one has ended well."""


class Keeper:
    """Watches one run from its start to its end."""

    def __init__(self, kept: KeptRun) -> None:
        self._kept, folder = kept, kept.path
        self._folder = folder
        self._scratch = Scratch.of(folder)  # now: the folder may be gone when the run ends
        self._cell = Cell.from_json((folder / CELL_FILE).read_text(encoding="utf-8"))
        self._traits = Traits.read(folder)
        self._lost: list[LostRank] = []
        self._seat = NodeSeat.read(folder)
        self._numbers = range(self._cell.gpus) if self._seat is None else self._seat.ranks
        self._meters = MeterFiles(folder, self._numbers)
        self._out_of_memory = watch.OutOfMemory()
        self._ranks: dict[int, subprocess.Popen[bytes] | Forked] = {}
        """By number; where torchrun starts them, one entry, torchrun itself, under the number of this node's first."""
        self._looks = itertools.count()
        self._stood_still: dict[int, str] = {}
        """By rank that was killed because it stood still: the words for how it ended."""
        self._poll = select.poll()

    def keep(self) -> Outcome:
        """Runs the cell to its end."""
        process.adopt_orphans()
        watch.be_ended_first()
        deadline = time.monotonic() + self._cell.time_limit_s
        try:
            self._ranks = self._launch()
            return replace(self._watch(deadline), lost=tuple(self._lost))
        finally:
            self._look_after_folder()
            leftovers.end_run(self._folder, own=self._scratch)
            self._kept.settle()

    def _look_after_folder(self) -> None:
        self._kept.look(lambda: [one.pid for one in psutil.Process().children(recursive=True)])

    def _launch(self) -> dict[int, subprocess.Popen[bytes] | Forked]:
        if self._seat is None:
            return dict(enumerate(local.launch(self._folder, self._cell.gpus)))
        self._traits = replace(self._traits, survives_lost_rank=False)  # torchrun ends its ranks when it loses one
        listening = os.environ.get(process.STORE_VARIABLE)
        fds = [int(listening)] if listening else []
        started = torchrun.launch(self._folder, self._seat, fds)
        for fd in fds:
            os.close(fd)
        return {self._numbers.start: started}

    def _watch(self, deadline: float) -> Outcome:
        fds = {os.pidfd_open(rank.pid): number for number, rank in self._ranks.items()}
        for fd in fds:
            self._poll.register(fd, select.POLLIN)
        self._poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
        stalls = watch.Stalls(self._meters, self._cell.stall_s)
        memory = watch.Memory.of(self._cell.memory_limit_bytes)
        while fds:
            left_s = deadline - time.monotonic()
            ready = self._poll.poll(max(0, min(left_s, watch.LOOK_S)) * 1000)
            if not ready and left_s <= 0:  # a rank that has ended by then is not late, even if the keeper is
                return self._timed_out(sorted(fds.values()))
            alive = set(fds.values()) if self._seat is None else set(self._numbers)
            if not ready and (trouble := self._look(stalls, memory, alive)):
                return trouble
            for fd, _ in ready:
                if fd == sys.stdin.fileno():
                    return Outcome("ended", "the harness ended the run")
                self._poll.unregister(fd)
                os.close(fd)
                number = fds.pop(fd)
                self._ranks[number].wait()
            codes = {number: rank.returncode for number, rank in self._ranks.items()}
            known = {lost.rank for lost in self._lost}
            failed = [number for number, code in codes.items() if code and number not in known]
            goes_on = fds and self._traits.survives_lost_rank and stalls.has_begun()
            if failed and not (goes_on and not any(map(self._ends_the_run, failed))):
                return self._failed(failed)
            for number in failed:
                self._lose(number)
            if self._traits.in_step and 0 in codes.values():
                deadline = min(deadline, time.monotonic() + END_LIMIT_S)
        return outcome_of(read_told(self._folder, self._numbers))

    def _look(self, stalls: watch.Stalls, memory: watch.Memory, alive: set[int]) -> Outcome | None:
        """Checks that the living ranks get on, within their memory; returns how the run ends if they do not."""
        self._look_after_folder()
        if next(self._looks) % watch.MEMORY_EVERY == 0 and (too_much := memory.exceeded(self._labels)):
            self._leave_stacks()
            return Outcome("failed", too_much)
        stalls.look()
        if self._traits.one_learner and 0 not in self._numbers:
            return None  # whether the ranks here have anything to do is up to rank 0, which another keeper watches
        if seconds := stalls.learned_nothing_s(alive):
            return self._learns_nothing(seconds)
        stalled = alive & set(stalls.stalled())
        if not stalled:
            return None
        if stalled == alive:
            return self._stalled(stalls.stood_still_s(stalled))
        if self._traits.survives_lost_rank:
            stacks.leave_stacks(self._folder, self._labels(stalled))  # the others go on, and are left alone
            for rank in stalled:
                self._stood_still[rank] = (
                    f"stood still for {stalls.stood_still_s({rank}):.0f} s (--stall) and was ended"
                )
                self._ranks[rank].kill()  # the keeper then sees its end like any other's
        return None

    def _learns_nothing(self, seconds: float) -> Outcome:
        self._leave_stacks()
        return Outcome("failed", f"nothing was learned for {seconds:.0f} s (--stall); stacks are in the folder")

    def _stalled(self, seconds: float) -> Outcome:
        phases = {rank: meter.phase() for rank, meter in self._meters.there().items()}
        stopped = self._leave_stacks()
        why = ", ".join(f"rank {rank}: {phase}" for rank, phase in phases.items()) or "no rank has started"
        if stopped:
            why = f"stopped by a signal: {', '.join(map(stacks.in_words, stopped))}"
        return Outcome(
            "failed",
            f"nothing was stepped or learned for {seconds:.0f} s (--stall); {why}; stacks are in the folder",
        )

    def _timed_out(self, alive: list[int]) -> Outcome:
        self._leave_stacks()
        running = ", ".join(map(str, alive))
        if self._traits.in_step and any(rank.returncode == 0 for rank in self._ranks.values()):
            return Outcome("failed", f"rank {running} did not exit within {END_LIMIT_S:g} s of the others")
        return Outcome(
            "timed-out", f"not over after {self._cell.time_limit_s:g} s (--time-limit); stacks are in the folder"
        )

    def _lose(self, number: int) -> None:
        """Kills what a rank left behind that ended before its time, and notes the lost rank."""
        leftovers.end_rank(number, self._ranks[number].pid)
        error, meter = self._folder / f"error-rank{number}.json", self._meters.there().get(number)
        how = self._stood_still.get(number) or process.how_it_ended(self._ranks[number].wait())
        lost = LostRank(
            rank=number,
            how=f"raised {json.loads(error.read_text(encoding='utf-8'))['error']}" if error.exists() else how,
            iteration=meter.count(0, "iteration") if meter else 0,
        )
        lost.leave(self._folder)
        self._lost.append(lost)

    def _ends_the_run(self, number: int) -> bool:
        """Whether a rank raised an error after which no run goes on."""
        error = self._folder / f"error-rank{number}.json"
        return error.exists() and bool(json.loads(error.read_text(encoding="utf-8")).get("ends_the_run"))

    def _failed(self, numbers: list[int]) -> Outcome:
        """Names the rank that was killed, or else the one that raised first; the others' errors follow from it."""
        self._leave_stacks()
        told = {} if self._seat is None else torchrun.first_failure(self._folder)
        codes = told or {number: self._ranks[number].wait() for number in numbers}
        paths = {number: self._folder / f"error-rank{number}.json" for number in self._numbers}
        there = {number: path for number, path in paths.items() if path.exists()}
        errors = {number: json.loads(path.read_text(encoding="utf-8")) for number, path in there.items()}
        if self._seat is None and all(is_consequence(errors.get(number, {}).get("error")) for number in numbers):
            codes |= self._killed_beside()
        killed = [number for number, code in codes.items() if code < 0]
        if killed or not errors:
            number = killed[0] if killed else min(codes)
            how = process.how_it_ended(codes[number])
            by_torchrun = self._seat is not None and not told
            who, where = ("torchrun", torchrun.OUTPUT) if by_torchrun else (f"rank {number}", "stderr.txt")
            reason = f"{who} {how}; {self._short_of_memory() or f'{where} may say more'}"
            return Outcome("failed", f"{reason}{self._after_losses()}")
        first = min(errors, key=lambda number: errors[number]["at_s"])
        reason = f"rank {first}: {errors[first]['error']}"
        if "SIGKILL" in reason and (short := self._short_of_memory()):
            reason = f"{reason}; {short}"
        return Outcome("failed", f"{reason}{self._after_losses(besides=first)}", errors[first]["traceback"])

    def _killed_beside(self) -> dict[int, int]:
        """Ranks that a signal is ending, and whose end the keeper has not seen yet; waits for it.

        Their connections close a moment earlier, so the keeper may first see a rank that raised because of that, and
        ended. Where that rank raised something else, their ends follow from its own: a process group that has lost a
        rank may abort.
        """
        ending = [
            number
            for number, rank in self._ranks.items()
            if rank.returncode is None and number not in self._stood_still and process.is_ending(rank.pid)
        ]
        codes = {number: self._ranks[number].wait() for number in ending}
        return {number: code for number, code in codes.items() if code < 0}

    def _after_losses(self, besides: int | None = None) -> str:
        """What may have led to the failure: ranks lost earlier, except `besides`, which is the reason itself."""
        return "".join(
            f"; before that, rank {lost.rank} {lost.how} in iteration {lost.iteration}"
            for lost in self._lost
            if lost.rank != besides
        )

    def _short_of_memory(self) -> str | None:
        happened = self._out_of_memory.happened()
        return "the kernel has ended processes for lack of memory meanwhile" if happened else None

    def _labels(self, of: Container[int] | None = None) -> dict[int, str]:
        """Labels of the processes of these ranks, or of all ranks, by process number."""
        meters = self._meters.there()
        if self._seat is None:
            alive = {number: rank.pid for number, rank in self._ranks.items() if rank.returncode is None}
        else:
            alive = {number: meter.count(0, "pid") for number, meter in meters.items()}
        if of is not None:
            alive = {number: pid for number, pid in alive.items() if number in of}
            meters = {number: meter for number, meter in meters.items() if number in of}
        return stacks.label_processes(alive, meters)

    def _leave_stacks(self) -> list[str]:
        """Has the run's processes leave their stacks; returns the labels of those that a signal had stopped."""
        return stacks.leave_stacks(self._folder, self._labels())


def main(folder: Path, runner: int) -> None:
    """Keeps the run in `folder` for the process `runner`, its parent, and leaves the outcome."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the runner passes on what they mean by closing stdin
    try:
        Path.cwd()
    except FileNotFoundError:  # it was removed; libraries that torch loads fail in such a folder
        os.chdir(tempfile.gettempdir())
    kept = KeptRun(folder)
    scratch = Scratch.of(folder)
    folder = kept.path  # processes below get this path too, and find the folder whatever its name is by then
    launch = Launch.read(folder)
    if launch is not None or NodeSeat.read(folder) is not None:
        process.leave_to_others(signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    if launch is None:
        Keeper(kept).keep().leave(folder)
    else:
        from rlbench.harness.launch.nodes.head import Head

        Head(kept, launch).keep().leave(folder)
    if scratch is not None and os.getppid() != runner:  # the runner is gone, which would read the folder and remove it
        scratch.remove_elsewhere()


if __name__ == "__main__":
    main(Path(sys.argv[1]), os.getppid())
