"""Runs a sweep as Slurm jobs, through submitit: one job for each cell, or one for all; waits for them and shows them.

This process, on the login node, writes the plan, `jobs.json` (which cell is which job), and a failed run for each job
that ended without one. Each job writes the folders of its own runs (`harness/cluster/job.py`). All files are on the
file system that login and compute nodes share, which submitit needs. This process blocks while it waits for jobs,
`POLL_S` at a time, until they leave the queue. When it stops waiting, the jobs go on, and `--resume` in any shell waits
for them again. It never submits a cell that a job still has.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.cluster.job import Job, cell_lock
from rlbench.harness.cluster.slurm_commands import ANSWER_LIMIT_S, how_it_ended, last_line, queued
from rlbench.harness.launch.nodes.gathered import LiveNodes
from rlbench.harness.plan.cells import Hasher
from rlbench.results.reading.untrusted import MIB, read_json
from rlbench.results.records import store, units

if TYPE_CHECKING:
    from rlbench.harness.launch.nodes.launches import Slurm
    from rlbench.harness.metering.live import Snapshot
    from rlbench.harness.plan.cells import Cell
    from rlbench.harness.run.runner import Interrupts, Runner
    from rlbench.harness.run.sweep import Sweep
    from rlbench.results.records.schema import RunRecord

JOBS_FILE = "jobs.json"
LOGS = "slurm"
"""Folder of submitit's files in the sweep's folder; `slurm-2` and so on where there is one already."""
JOBS_BYTES = 32 * MIB
JOB = re.compile(r"\d{1,20}(?:_\d{1,20})?")
"""Slurm's id of a job, or of one job of an array."""
POLL_S = 3.0
MOST_FAILURES = 200
GONE_AFTER = 2
"""A job has ended after this many looks without it: one that is requeued may be in no list for a moment."""
MARGIN_S = 300.0
"""Seconds in a job's time limit to start and end the processes of a cell."""
WARNED_S = 60
"""Slurm sends USR1 this long before it ends a job; the run is given up, its folder removed, and the job requeued."""
SIGNAL = "USR1"
MOST_REQUEUES = 3
PYTHON = f"{shlex.quote(sys.executable)} -P"
"""The command that runs a job. `-P`, as in all that a run starts, keeps packages in the working folder from hiding
ours."""


@dataclass(slots=True)
class _Waiting:
    """A cell whose job has not ended."""

    number: int
    """The cell's number in the sweep, from 0."""
    job: str
    runs_before: int
    """Number of runs that the cell had when it was submitted."""
    state: str = "PENDING"
    missed: int = 0
    """Number of looks in a row at which the job was not in the queue."""


class Jobs:
    """The jobs of one sweep."""

    def __init__(self, sweep: Sweep, runner: Runner, slurm: Slurm) -> None:
        self._sweep, self._runner, self._slurm = sweep, runner, slurm
        self._hasher = Hasher()
        self._failures = 0
        """Number of times in a row that Slurm has not answered."""

    def run(self, cells: Sequence[Cell], interrupts: Interrupts) -> bool:
        """Submits the cells that are not in the queue, and waits for all; returns False if somebody stops the wait."""
        if not re.fullmatch(r"[\w.-]+", self._sweep.id):
            raise ValueError(f"{self._sweep.folder}: its name becomes that of jobs: letters, digits, '_', '.' and '-'")
        numbers = [self._sweep.cells.index(cell) for cell in cells]
        known, queue = read_jobs(self._sweep.folder), queued()
        waiting = {number: known[number] for number in numbers if number in known and known[number].job in queue}
        new = [number for number in numbers if number not in waiting]
        runs_before = {number: len(self._runs_of(number)) for number in new}
        for submitted in self._submit(new):
            waiting |= {number: _Waiting(number, job, runs_before[number]) for number, job in submitted.items()}
            self._write(known | waiting)  # at once: these jobs must be known if Slurm refuses the next
        for one in waiting.values():
            self._say(one, f"job {one.job}")
        while waiting and not interrupts.requested:
            self._look(list(waiting.values()))
            for one in [one for one in waiting.values() if one.missed >= GONE_AFTER]:
                del waiting[one.number]
                self._end(one)
            interrupts.sleep(POLL_S if waiting else 0.0)
        return not waiting

    def _submit(self, numbers: Sequence[int]) -> Iterator[dict[int, str]]:
        """Submits cells in groups that need the same number of nodes; yields the job ids of each group by cell."""
        if not numbers:
            return
        os.environ["SUBMITIT_PREEMPT_SIGNAL"] = SIGNAL  # it is read when submitit is imported
        import submitit

        by_nodes: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            by_nodes[self._slurm.num_nodes(self._sweep.cells[number].gpus)].append(number)
        if self._slurm.one_allocation:
            by_nodes = {max(by_nodes): list(numbers)}
        plan = str(self._sweep.plan_file.resolve())
        logs = make_logs(self._sweep.folder.resolve())
        for nodes, of_nodes in by_nodes.items():
            executor = submitit.SlurmExecutor(logs, max_num_timeout=MOST_REQUEUES, python=PYTHON)
            executor.update_parameters(**self._parameters(nodes, of_nodes))
            try:
                if self._slurm.one_allocation:
                    job = executor.submit(Job(plan, tuple(of_nodes), self._slurm))
                    found = dict.fromkeys(of_nodes, job.job_id)
                else:
                    made = [Job(plan, (one,), self._slurm) for one in of_nodes]
                    found = dict(zip(of_nodes, (job.job_id for job in executor.map_array(_call, made)), strict=True))
            except (RuntimeError, subprocess.SubprocessError) as error:
                raise ValueError(f"sbatch: {last_line(error)}") from None
            yield found

    def _parameters(self, nodes: int, numbers: Sequence[int]) -> dict[str, Any]:
        cells = [self._sweep.cells[number] for number in numbers]
        seconds = [cell.time_limit_s + MARGIN_S for cell in cells]
        minutes = math.ceil((sum(seconds) if self._slurm.one_allocation else max(seconds)) / 60)
        here = min(self._slurm.gpus_per_node, max(cell.gpus for cell in cells))
        of_gpus = {"gpus_per_node": here} if cells[0].device == "cuda" else {}
        return {
            "job_name": f"rlbench-{self._sweep.id}",
            "nodes": nodes,
            "ntasks_per_node": 1,
            "time": minutes,
            "signal_delay_s": WARNED_S,
            "exclusive": True,
            "array_parallelism": self._slurm.at_once or len(numbers),
            "srun_args": ["--nodes=1", "--ntasks=1", "--overlap"],
            **of_gpus,
            "additional_parameters": {"requeue": True, **self._slurm.settings},
        }

    def _look(self, waiting: Sequence[_Waiting]) -> None:
        """Asks Slurm for the states of all jobs, and shows the running ones."""
        try:
            queue = queued()
        except ValueError as error:  # Slurm's controller may be away for a while
            self._failures += 1
            if self._failures > MOST_FAILURES:
                raise ValueError(f"{error}; the jobs go on, and --resume waits for them again") from None
            return
        self._failures = 0
        for one in waiting:
            state = queue.get(one.job)
            one.missed = 0 if state else one.missed + 1
            if state and state != one.state:
                one.state = state
                self._say(one, f"job {one.job} is {state.lower()}")
        running = {
            1 + one.number: (self._sweep.cells[one.number], snapshot)
            for one in waiting
            if (snapshot := self._snapshot(one))
        }
        self._runner.display.update_jobs(running, len(waiting))

    def _snapshot(self, one: _Waiting) -> Snapshot | None:
        """How far the cell is, if it runs."""
        pattern = f"{store.PARTIAL_PREFIX}{1 + one.number:03d}-*"
        for partial in self._sweep.folder.glob(pattern):
            with suppress(OSError, ValueError):
                return LiveNodes(partial).read()
        return None

    def _end(self, one: _Waiting) -> None:
        """Shows what a job left that has left the queue, or records a failed run that says what became of the job."""
        cell = self._sweep.cells[one.number]
        deadline = time.monotonic() + ANSWER_LIMIT_S
        with cell_lock(self._sweep.folder, one.number, lambda: time.monotonic() > deadline) as is_ours:
            runs = self._runs_of(one.number)
            if not is_ours:
                self._say(one, f"job {one.job} has left the queue, but another process still has the cell")
                return
            if len(runs) > one.runs_before:
                record = max(runs, key=lambda record: record.began)
            else:
                self._sweep.remove_partial(one.number)
                why = f"job {one.job} {how_it_ended(one.job)} and left no run; {LOGS}*/ holds its output"
                record = self._runner.fail(cell, why)
        self._runner.display.note_end(1 + one.number, record.status, record.duration_s)
        rate = record.figures.steps_per_s
        detail = (
            f": {record.reason}"
            if record.reason
            else f", {rate:,.0f} {units.rate(record.counters.unit)}"
            if rate
            else ""
        )
        self._say(one, f"{record.status}{detail}")

    def _runs_of(self, number: int) -> list[RunRecord]:
        name = self._hasher.of(self._sweep.cells[number])
        runs, _ = store.read_readable(self._sweep.folder)
        return [run.record for run in runs if run.record.cell.hash == name]

    def _say(self, one: _Waiting, line: str) -> None:
        number = f"[{1 + one.number}/{len(self._sweep.cells)}]"
        self._runner.display.say(f"{number} {self._sweep.cells[one.number].label}: {line}")

    def _write(self, jobs: Mapping[int, _Waiting]) -> None:
        told = {number: {"job": one.job, "runs_before": one.runs_before} for number, one in jobs.items()}
        store.write_whole(self._sweep.folder / JOBS_FILE, json.dumps(told, indent=1))


def read_jobs(folder: Path) -> dict[int, _Waiting]:
    """The jobs that a sweep in `folder` has had, by cell. Raises ValueError if the list is damaged."""
    path = folder / JOBS_FILE
    if not os.path.lexists(path):
        return {}
    try:
        told = read_json(path, JOBS_BYTES)
        jobs = [
            _Waiting(int(number), JOB.fullmatch(job["job"])[0], int(job["runs_before"]))  # type: ignore[index]
            for number, job in told.items()
        ]
    except (KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{path}: is damaged (it is no list of jobs); move it elsewhere, and no job is waited for"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: is damaged ({error}); move it elsewhere, and no job is waited for") from None
    return {one.number: one for one in jobs}


def make_logs(folder: Path) -> Path:
    """Makes a new folder for submitit's files in `folder`, the sweep's; files in an old one may be anybody's."""
    for number in itertools.count(1):
        path = folder / (LOGS if number == 1 else f"{LOGS}-{number}")
        with suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError("there are numbers enough")


def _call(job: Job) -> None:
    job()
