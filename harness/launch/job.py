"""What a Slurm job of a sweep does, on its first node: runs one cell after the other on the nodes of its allocation.

A cell is run by whoever holds its lock (`flock`, which the kernel frees when its holder dies, also over NFS), so a job
that Slurm has requeued waits for the first one to be gone, on a node that Slurm could not reach any more, and then runs
only what that has not finished. SIGTERM, from `scancel` or preemption, and USR1, before the time limit, give the run up
and remove its folder; after USR1 submitit has Slurm run the job again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from harness import machine
from harness.launch.choose import allocated_hosts
from harness.launch.nodes import SRUN, Launch
from harness.plan import Hasher
from harness.progress import Display
from harness.sweep import Sweep
from reports.table import make_console

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """Some cells of a sweep; submitit calls it on the first node."""

    plan: str
    """Path of the sweep's plan."""
    numbers: tuple[int, ...]
    """Of the cells in the sweep, from 0."""
    gpus_per_node: int
    interface: str

    def __call__(self) -> None:
        """Runs the cells that have no finished run yet."""
        from harness.runner import Interrupted, Interrupts, Runner

        sweep = Sweep.read(Path(self.plan))
        launch = Launch(
            hosts=allocated_hosts(os.environ), gpus_per_node=self.gpus_per_node, interface=self.interface, remote=SRUN
        )
        console, hasher = make_console(), Hasher()
        with Display(console, len(sweep.cells)) as display, Interrupts() as interrupts:
            runner = Runner(
                sweep=sweep,
                display=display,
                command=sweep.command,
                about_machine=machine.describe(),
                interrupts=interrupts,
                launch=launch,
            )
            for number in self.numbers:
                cell = sweep.cells[number]
                with cell_lock(sweep.folder, number, lambda: interrupts.requested) as is_ours:
                    if not is_ours or hasher.of(cell) in sweep.finished():
                        continue
                    sweep.remove_partial(number)
                    display.begin(number + 1, cell)
                    try:
                        record = runner.run(cell)
                    except Interrupted:
                        console.print(Text("interrupted"))
                        return
                    display.end(record.status, f": {record.reason}" if record.reason else "")

    def checkpoint(self) -> DelayedSubmission:
        """What submitit has Slurm run again after USR1: the same; a cell that has finished is passed over."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


@contextmanager
def cell_lock(folder: Path, number: int, gives_up: Callable[[], bool]) -> Iterator[bool]:
    """Keeps a cell of the sweep in `folder` for this process; waits while another one has it.

    Yields whether this process has it: not where `gives_up` said so first.
    """
    with (folder / f".cell-{1 + number:03d}.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if gives_up():
                    yield False
                    return
                time.sleep(LOOK_S)
            else:
                break
        yield True
