"""What a Slurm job of a sweep does on its first node: it runs one cell after the other on the nodes of its allocation.

The process that holds a cell's lock runs the cell (`flock`, which the kernel frees when its holder dies, also over
NFS). So a job that Slurm has requeued waits until the first one, perhaps on a node that Slurm no longer reaches, is
gone, and then runs only the cells that are not finished. SIGTERM (from `scancel` or preemption) and USR1 (before the
time limit) give the run up and remove its folder; after USR1, submitit has Slurm run the job again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from rlbench.harness.cluster.slurm_commands import ask, job_fields
from rlbench.harness.launch.launcher import allocated_hosts
from rlbench.harness.launch.nodes.launches import SRUN, Launch, Slurm
from rlbench.harness.live.display import Display
from rlbench.harness.machine import machine
from rlbench.harness.plan.cells import Hasher
from rlbench.harness.processes.removal import open_lock
from rlbench.harness.run.sweep import Sweep
from rlbench.harness.run.sweep_folder import SweepFolder
from rlbench.reports.terminal.table import make_console

if TYPE_CHECKING:
    from rich.console import Console
    from submitit.helpers import DelayedSubmission

LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """Some cells of a sweep; submitit calls it on the first node."""

    plan: str
    """Path of the sweep's plan."""
    numbers: tuple[int, ...]
    """The cells' numbers in the sweep, from 0."""
    slurm: Slurm

    def __call__(self) -> None:
        """Runs the cells that have no finished run yet."""
        from rlbench.harness.run.runner import Interrupted, Interrupts, Runner

        sweep = Sweep.read(Path(self.plan))
        launch = Launch(
            hosts=allocated_hosts(os.environ),
            gpus_per_node=self.slurm.gpus_per_node,
            interface=self.slurm.interface,
            remote=SRUN,
            oversubscribe=self.slurm.oversubscribe,
        )
        console, hasher = make_console(), Hasher()
        with (
            Display(console, len(sweep.cells)) as display,
            SweepFolder(sweep, display.say) as sweep_folder,
            Interrupts() as interrupts,
        ):
            runner = Runner(
                sweep=sweep,
                display=display,
                command=sweep.command,
                about_machine=machine.describe(),
                interrupts=interrupts,
                sweep_folder=sweep_folder,
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
                        break
                    display.end(record.status, f": {record.reason}" if record.reason else "")
            if interrupts.requested:
                _requeue_if_preempted(console)

    def checkpoint(self) -> DelayedSubmission:
        """What submitit has Slurm run again after USR1: the same job, which passes over cells that have finished."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _requeue_if_preempted(console: Console) -> None:
    """Has Slurm run this job again if it is preempted with a grace time.

    Slurm counts a job as completed if it ends by itself within that time, as this one is about to.
    """
    job = own_job(os.environ)
    told = job_fields(job)
    if told.get("JobState") == "RUNNING" and told.get("PreemptTime", "None") not in {"None", "N/A"}:
        console.print(Text(f"job {job} is preempted, and requeued"))
        try:
            ask(["scontrol", "requeue", job])
        except ValueError as error:  # the process that waits for the job says that it left no run
            console.print(Text(f"it is not requeued: {error}"))


def own_job(variables: Mapping[str, str]) -> str:
    """Slurm's name of this job; SLURM_JOB_ID alone may stand for its whole array."""
    if "SLURM_ARRAY_TASK_ID" in variables:
        return f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"
    return variables.get("SLURM_JOB_ID", "")


@contextmanager
def cell_lock(folder: Path, number: int, gives_up: Callable[[], bool]) -> Iterator[bool]:
    """Locks a cell of the sweep in `folder` for this process; waits while another process has it.

    Yields whether this process has it: False if `gives_up` returned True first.
    """
    path = folder / f".cell-{1 + number:03d}.lock"
    try:
        lock = open_lock(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be locked: {error.strerror}; remove it") from None
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if gives_up():
                    yield False
                    return
                time.sleep(LOOK_S)
            else:
                break
        yield True
    finally:
        os.close(lock)
