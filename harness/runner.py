"""Runs the cells of a sweep, one after the other, each in a process tree of its own under a keeper.

Who writes: the runner writes `cell.json` and, when the keeper has ended, the record; the keeper and its ranks write
the rest of the run's folder. What blocks: waiting for the keeper's end, a quarter of a second at a time, between
which the display is updated. What frees it: the keeper ends when its run is over, when the run's time limit has
passed, or when the pipe to its stdin is closed; the runner closes that on Ctrl-C and SIGTERM, and the kernel does
when the runner is killed. A keeper that stands still is killed a minute after the time limit. If the keeper is killed,
the runner, which adopts orphans, kills what was below it. A run's folder gets its name by one rename at the end.
Signals are noted and never raised, so none breaks off a clean-up, nor the writing of a run that is over.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import psutil

from harness import leftovers, machine, process
from harness.devices import gpu_indices
from harness.launch import parts
from harness.libraries import packages_of
from harness.outcome import Outcome, read_lost
from harness.progress import Display, LiveMeters, LiveNodes
from harness.record import Measured, cell_record, gather_streams, measure
from harness.shared_memory import Before
from harness.telemetry import PERIOD_S, Telemetry
from harness.traits import Traits
from results import schema, store
from results.findings import CORE_WAIT_SHARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.launch.nodes import Launch
    from harness.plan import Cell
    from harness.sweep import Sweep
    from harness.telemetry import Readings

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.25
KEEPER_END_S, KEEPER_LIMIT_S = 10.0, 60.0
"""A keeper that has not ended its run so long after the time limit never will: it is stopped, or hangs."""
GATHER_LIMIT_S = 600.0
"""More for several machines: to gather what all have left, beside the time in which they come up."""
BUSY_CPU_SHARE = 0.85
"""Emulated GPUs whose processes keep the cores busier than this measure the machine too."""


class Interrupted(Exception):  # noqa: N818  not an error: somebody asked for it
    """Ctrl-C or SIGTERM; the run that was under way has left nothing."""


class Interrupts:
    """Notes Ctrl-C, SIGTERM and SIGHUP while it is entered, in the main thread, however often they come.

    What is ignored stays ignored: `nohup rlbench run` outlives its terminal.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def _note(self, *_: object) -> None:
        self.requested = True

    def sleep(self, seconds: float) -> None:
        """Waits, or returns at once when something was noted, or within a quarter of a second after it was."""
        deadline = time.monotonic() + seconds
        while not self.requested and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(left_s, POLL_S))

    def __enter__(self) -> Self:
        heeded = [number for number in END_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, kw_only=True, slots=True)
class Runner:
    """Runs cells of a sweep; `run` may be called once for each."""

    sweep: Sweep
    display: Display
    command: Sequence[str]
    about_machine: dict[str, Any]
    interrupts: Interrupts
    launch: Launch | None = None
    """The machines that runs are spread over; None: this one alone."""

    def run(self, cell: Cell) -> schema.RunRecord:
        """Runs one cell to its end, whatever that is, and publishes its folder. Raises Interrupted."""
        if self.interrupts.requested:
            raise Interrupted
        name = self.sweep.run_name(cell)
        partial = self.sweep.folder / f"{store.PARTIAL_PREFIX}{name}"
        try:
            partial.mkdir()
            (partial / "cell.json").write_text(cell.to_json())
            system, scenario = cell.load()
            Traits.of(system).leave(partial)
            if self.launch is not None:
                self.launch.leave(partial)
            scratch = leftovers.make_scratch(partial, Before.now(scenario))
            started_at, began = machine.now(), time.perf_counter()
            outcome, telemetry = self._keep(cell, partial, scratch)
            record = self._record(
                name, cell, partial, outcome, telemetry, started_at.isoformat(), time.perf_counter() - began
            )
            gather_streams(partial, cell.gpus)
            store.write_run(partial, record)
            store.publish(partial, self.sweep.folder / name)
        except OSError as error:
            raise ValueError(f"{partial}: cannot be written: {error.strerror}; earlier runs are kept") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return record

    def fail(self, cell: Cell, reason: str) -> schema.RunRecord:
        """Publishes a failed run of a cell that left none itself."""
        name = self.sweep.run_name(cell)
        partial = self.sweep.folder / f"{store.PARTIAL_PREFIX}{name}"
        record = schema.RunRecord(
            id=name,
            sweep=self.sweep.id,
            status="failed",
            reason=reason,
            cell=cell_record(cell),
            configuration=cell.configuration(),
            machine=self.about_machine,
            packages=packages_of(cell.load()[0]),
            commit=machine.commit(Path.cwd()),
            command=list(self.command),
            started_at=machine.now().isoformat(),
            duration_s=0.0,
        )
        try:
            partial.mkdir()
            store.write_run(partial, record)
            store.publish(partial, self.sweep.folder / name)
        except OSError as error:
            raise ValueError(f"{partial}: cannot be written: {error.strerror}; earlier runs are kept") from None
        return record

    def _keep(self, cell: Cell, partial: Path, scratch: Path) -> tuple[Outcome, Readings]:
        """Starts the keeper, shows the run's progress until it ends, and leaves no process behind."""
        process.adopt_orphans()
        others = frozenset(child.pid for child in psutil.Process().children())
        with (partial / "keeper.err").open("wb") as err:
            keeper = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-P", "-m", "harness.keeper", str(partial)],
                stdin=subprocess.PIPE,
                stdout=err,
                stderr=err,
                start_new_session=True,  # a Ctrl-C in the terminal reaches the runner alone
                env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TMPDIR": str(scratch)},
            )
            gpus = gpu_indices(cell.device, cell.gpus) if self.launch is None else []
            telemetry = Telemetry(keeper.pid, PERIOD_S, gpus)
            meters = LiveMeters(partial, range(cell.gpus)) if self.launch is None else LiveNodes(partial)
            deadline = time.monotonic() + cell.time_limit_s + KEEPER_LIMIT_S
            if self.launch is not None:
                deadline += 2 * cell.stall_s + GATHER_LIMIT_S
            try:
                while keeper.poll() is None and not self.interrupts.requested and time.monotonic() < deadline:
                    self._say_lost(partial, meters)
                    self.display.update(meters.read())
                    with suppress(subprocess.TimeoutExpired):
                        keeper.wait(POLL_S)
                goes_on = keeper.poll() is None
            finally:
                process.end_keeper(keeper, KEEPER_END_S)
                telemetry.stop()
                leftovers.end_run(partial, spare=others)
        outcome = Outcome.read(partial)
        # What asks for the end of this process may end nodes of the run first, as Slurm does: that is no failure.
        ended_with_us = self.launch is not None and (outcome is None or outcome.status != "finished")
        if self.interrupts.requested and (goes_on or ended_with_us):
            raise Interrupted
        self._say_lost(partial, meters)
        if outcome is None:
            how = "stood still and was ended" if goes_on else process.how_it_ended(keeper.returncode)
            how = f"the keeper of the run {how}"
            outcome = Outcome("failed", how, (partial / "keeper.err").read_text(), read_lost(partial))
        return outcome, telemetry if self.launch is None else parts.read_telemetry(partial)

    def _say_lost(self, partial: Path, meters: LiveMeters | LiveNodes) -> None:
        """Says which ranks were lost since the last call."""
        for lost in read_lost(partial):
            if meters.lose(lost.rank):
                self.display.say(f"warning: {lost}")

    def _record(
        self,
        name: str,
        cell: Cell,
        partial: Path,
        outcome: Outcome,
        telemetry: Readings,
        started_at: str,
        duration_s: float,
    ) -> schema.RunRecord:
        system, scenario = cell.load()
        time_scale = getattr(scenario, "time_scale", 1.0)
        lost, nodes = [one.rank for one in outcome.lost], parts.describe(partial)
        measured = measure(partial, cell, time_scale, telemetry, Traits.of(system), lost)
        status, reason = outcome.status, outcome.reason
        if status == "finished" and measured.problem:
            status, reason = "invalid", measured.problem
        if outcome.traceback:
            (partial / "traceback.txt").write_text(outcome.traceback)
        if not (partial / "keeper.err").stat().st_size:
            (partial / "keeper.err").unlink()
        return schema.RunRecord(
            id=name,
            sweep=self.sweep.id,
            status=cast("schema.Status", status),
            reason=reason,
            cell=cell_record(cell),
            configuration=cell.configuration(),
            counters=measured.counters,
            figures=measured.figures,
            machine=nodes[0].machine if nodes else self.about_machine,
            nodes=nodes,
            packages=packages_of(system),
            commit=machine.commit(Path.cwd()),
            command=list(self.command),
            started_at=started_at,
            duration_s=duration_s,
            warnings=[*_lost(outcome, measured), *_warnings(cell, measured.figures, telemetry)],
        )


def _lost(outcome: Outcome, measured: Measured) -> list[str]:
    """A line for each rank that the run went on without."""
    return [
        f"{lost}; {measured.lost_env_steps[lost.rank]:,} env steps that it had collected and not learned "
        "count as discarded"
        for lost in outcome.lost
    ]


def _warnings(cell: Cell, figures: schema.Figures, telemetry: Readings) -> list[str]:
    warnings = []
    cores = len(os.sched_getaffinity(0))
    busy, waited = figures.cpu_percent.value, figures.core_wait.value
    said = []
    if busy is not None and busy > 100 * cores * BUSY_CPU_SHARE:
        said.append(f"the {cores} cores were {busy / cores:.0f} % busy")
    if waited is not None and waited > CORE_WAIT_SHARE:
        said.append(f"ranks waited for one of {cores} cores for {100 * waited:.0f} % of their time")
    if cell.device == "emulated" and said:
        warnings.append(f"{' and '.join(said)}: figures of emulated GPUs are too low; raise --time-scale")
    if cell.device == "cuda" and telemetry.problem:
        warnings.append(telemetry.problem)
    return warnings
