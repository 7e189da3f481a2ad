"""Runs the cells of a sweep, one after the other, each in a process tree of its own under a keeper.

The runner writes `cell.json` and, when the keeper has ended, the record; the keeper and its ranks write the rest of the
run's folder. The runner blocks while it waits for the keeper's end, a quarter of a second at a time, and updates the
display in between. The keeper ends when its run is over, when the run's time limit has passed, or when the pipe to its
stdin is closed: the runner closes it on Ctrl-C, SIGTERM and SIGHUP, and the kernel does when the runner is killed. The
runner ends a keeper that stands still a minute after the time limit. If the keeper is killed, the runner, which adopts
orphans, kills what was below it. A run's folder gets its name by one rename at the end; by then it and the sweep's
folder may have been renamed or removed (`harness/processes/held.py`, `harness/run/sweep_folder.py`). Signals are noted
and never raised, so none breaks off a clean-up, or the writing of a run that is over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from rlbench.harness.contract.traits import Traits
from rlbench.harness.devices.kinds import gpu_indices
from rlbench.harness.launch.nodes import gathered
from rlbench.harness.launch.nodes.gathered import LiveNodes
from rlbench.harness.live.display import Display
from rlbench.harness.machine.telemetry import PERIOD_S, Telemetry
from rlbench.harness.metering.live import LiveMeters
from rlbench.harness.processes import leftovers, process, raised
from rlbench.harness.processes.held import CELL_FILE, Held, elsewhere
from rlbench.harness.processes.outcome import Outcome, read_lost
from rlbench.harness.processes.scratch import Scratch
from rlbench.harness.processes.shared_memory import Before
from rlbench.harness.run import zygote_client
from rlbench.harness.run.end_of_run import REMOVED, Ended, failed, preface, record_run
from rlbench.harness.run.record import gather_streams
from rlbench.harness.run.sweep_folder import NO_ROOM, CannotWrite, SweepFolder
from rlbench.results.records import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.harness.launch.nodes.launches import Launch
    from rlbench.harness.machine.telemetry import Readings
    from rlbench.harness.plan.cells import Cell
    from rlbench.harness.processes.forked import Forked
    from rlbench.harness.run.sweep import Sweep

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.25
KEEPER_END_S, KEEPER_LIMIT_S = 10.0, 60.0
"""Seconds that a keeper has to end after its stdin is closed, or it is killed; and seconds that it has after the time
limit, or its stdin is closed, since it is stopped or hangs."""
GATHER_LIMIT_S = 600.0
"""Extra seconds for several machines, to gather what all have left; twice `--stall` to come up is added to it."""


class Interrupted(Exception):  # noqa: N818  not an error: somebody asked for it
    """Somebody asked for the end (Ctrl-C, SIGTERM, SIGHUP); the run that was under way leaves nothing."""


class Interrupts:
    """Notes Ctrl-C, SIGTERM and SIGHUP while it is entered, in the main thread, however often they come.

    A signal that was ignored stays ignored: `nohup rlbench run` outlives its terminal.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def _note(self, *_: object) -> None:
        self.requested = True

    def sleep(self, seconds: float) -> None:
        """Waits; returns at once if a signal was noted before, within a quarter of a second if one comes meanwhile."""
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
    """Runs cells of a sweep; call `run` once for each."""

    sweep: Sweep
    display: Display
    command: Sequence[str]
    about_machine: dict[str, Any]
    interrupts: Interrupts
    sweep_folder: SweepFolder
    """The sweep's folder."""
    launch: Launch | None = None
    """The machines that runs are spread over; None: only this one."""

    def run(self, cell: Cell) -> schema.RunRecord:
        """Runs one cell to its end, whatever that is, and publishes its folder. Raises Interrupted.

        Raises ValueError where nothing can be written.
        """
        if self.interrupts.requested:
            raise Interrupted
        name = self.sweep_folder.begin(cell)
        known = self._preface(name, cell)
        try:
            return self._run(cell, name, known)
        except (Interrupted, CannotWrite):
            raise
        except OSError as error:
            if error.errno in NO_ROOM:
                raise self.sweep_folder.cannot_write(error) from None
            reason = raised.in_a_line(error)  # its folder was removed at a moment when nothing could make it anew
        except Exception as error:  # noqa: BLE001  a file that the cell names is gone, or a plug-in fails this time
            reason = raised.message(error) if isinstance(error, ValueError) else raised.in_a_line(error)
        return self.fail(cell, reason)

    def _run(self, cell: Cell, name: str, known: dict[str, Any]) -> schema.RunRecord:
        system, scenario = cell.load()
        traits, is_to_end = Traits.of(system), lambda: self.interrupts.requested
        began = time.perf_counter()
        import pandas as pd  # noqa: F401  the record needs it, and until torch is imported there is nothing else to do

        if self.launch is None and not zygote_client.living().prepare(traits.preload, is_to_end):
            raise Interrupted
        named = self.sweep_folder.unfinished(name)
        named.mkdir()
        with ExitStack() as stack:
            partial = stack.enter_context(Held(named))
            stack.callback(partial.remove, [named])
            scratch = Scratch.make(partial.path, Before.now(scenario))
            stack.callback(scratch.remove)
            stack.callback(partial.remove, [elsewhere(scratch.path)])
            (partial.path / CELL_FILE).write_text(cell.to_json(), encoding="utf-8")
            traits.leave(partial.path)
            if self.launch is not None:
                self.launch.leave(partial.path)
            outcome, telemetry = self._keep(cell, partial, scratch)
            was_removed = partial.was_gone or not (partial.path / CELL_FILE).exists()
            ended = Ended(
                cell=cell,
                system=system,
                scenario=scenario,
                outcome=outcome,
                telemetry=telemetry,
                began_s=began,
                duration_s=time.perf_counter() - began,
                warnings=[*([REMOVED] if was_removed else ()), *scratch.before.left_behind()],
            )
            self.display.step("writing the record")
            record = record_run(known, partial.path, ended)
            gather_streams(partial.path, cell.gpus)
            self.sweep_folder.publish(partial, record)
        return record

    def fail(self, cell: Cell, reason: str) -> schema.RunRecord:
        """Publishes a failed run for a cell that left no run itself. Raises ValueError where it cannot be written."""
        name = self.sweep_folder.begin(cell)
        return self.sweep_folder.leave(name, failed(self._preface(name, cell), reason))

    def _preface(self, name: str, cell: Cell) -> dict[str, Any]:
        return preface(name, self.sweep.id, cell, self.command, self.about_machine, self.sweep.sweep_file)

    def _keep(self, cell: Cell, held: Held, scratch: Scratch) -> tuple[Outcome, Readings]:
        """Starts the keeper, shows the run's progress until it ends, and leaves no process behind."""
        partial, anew = held.path, [held.where, elsewhere(scratch.path)]
        process.adopt_orphans()
        others = frozenset(child.pid for child in psutil.Process().children())
        with ExitStack() as stack:
            stack.callback(held.make_anew, anew[-1])
            stack.callback(held.follow, anew)
            stack.callback(leftovers.end_run, partial, spare=others, own=scratch)
            keeper = self._start(partial, scratch)
            stack.callback(process.end_keeper, keeper, KEEPER_END_S)
            gpus = gpu_indices(cell.device, cell.gpus) if self.launch is None else []
            telemetry = Telemetry(keeper.pid, PERIOD_S, gpus)
            stack.callback(telemetry.stop)
            meters = LiveMeters(partial, range(cell.gpus)) if self.launch is None else LiveNodes(partial)
            stack.callback(meters.close)
            deadline = time.monotonic() + cell.time_limit_s + KEEPER_LIMIT_S
            if self.launch is not None:
                deadline += 2 * cell.stall_s + GATHER_LIMIT_S
            while keeper.poll() is None and not self.interrupts.requested and time.monotonic() < deadline:
                held.follow(anew)  # to where the keeper has made the folder anew
                self._say_lost(partial, meters)
                self.display.update(meters.read())
                with suppress(subprocess.TimeoutExpired):
                    keeper.wait(POLL_S)
            goes_on = keeper.poll() is None
        outcome = Outcome.read(partial)
        # Whatever asks this process to end, such as Slurm, may end nodes of the run first: that is no failure.
        ended_with_us = outcome is not None and outcome.status == "interrupted"
        ended_with_us |= self.launch is not None and (outcome is None or outcome.status != "finished")
        if self.interrupts.requested and (goes_on or ended_with_us):
            raise Interrupted
        self._say_lost(partial, meters)
        if outcome is None or outcome.status == "ended":
            how = "stood still and was ended" if goes_on else process.how_it_ended(keeper.wait())
            how = f"the keeper of the run {how}"
            outcome = Outcome("failed", how, self._said_by_keeper(partial), read_lost(partial))
        return outcome, telemetry if self.launch is None else gathered.read_telemetry(partial)

    def _start(self, partial: Path, scratch: Scratch) -> Forked | subprocess.Popen[bytes]:
        """Starts the keeper. Raises Interrupted, and ZygoteDied where it cannot be forked."""
        variables = {"TMPDIR": str(scratch.path)}
        with (partial / "keeper.err").open("wb") as err:
            if self.launch is None:
                keeper = zygote_client.living().keep(partial, variables, err, lambda: self.interrupts.requested)
                if keeper is None:
                    raise Interrupted
                return keeper
            return subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-P", "-m", "rlbench.harness.run.keeper", str(partial)],
                stdin=subprocess.PIPE,
                stdout=err,
                stderr=err,
                start_new_session=True,  # a Ctrl-C in the terminal reaches the runner alone
                env={**os.environ, **variables},
            )

    @staticmethod
    def _said_by_keeper(partial: Path) -> str:
        """What the keeper printed; it prints only when it fails."""
        with suppress(FileNotFoundError):
            return (partial / "keeper.err").read_text(encoding="utf-8", errors="backslashreplace")
        return ""

    def _say_lost(self, partial: Path, meters: LiveMeters | LiveNodes) -> None:
        """Says which ranks were lost since the last call."""
        for lost in read_lost(partial):
            if meters.lose(lost.rank):
                self.display.say(f"warning: {lost}")
