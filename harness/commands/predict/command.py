"""What `rlbench predict` does: plans a sweep as `rlbench run` does, and has each cell's system predict it.

One thread predicts, so nothing can time out; another shows on stderr how far it is, and a third says so to those who
watch (`harness/live/live_file.py`). It leaves nothing behind but run folders, each of which appears by one rename.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rlbench.harness.commands import caller
from rlbench.harness.commands.predict.from_run import from_run
from rlbench.harness.commands.predict.gains import asked_why, gains
from rlbench.harness.live.counted import Counted
from rlbench.harness.live.footer import progress_console
from rlbench.harness.live.live_file import LiveFile
from rlbench.harness.live.state import LiveSweep
from rlbench.harness.machine import machine
from rlbench.harness.plan.cells import Cell
from rlbench.harness.predicting.options import PredictOptions
from rlbench.harness.predicting.planning import plan_predictions, predict_cell
from rlbench.harness.predicting.record import write_prediction
from rlbench.harness.processes.held import Held
from rlbench.harness.run.sweep import Sweep
from rlbench.reports.terminal.table import make_console, print_table
from rlbench.results.records import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rlbench.results.records.schema import RunRecord


def print_predictions(
    asked: PredictOptions, run: Path | None, out: Path, command: Sequence[str], *, explain: bool = False
) -> int:
    """Predicts a sweep, from the profile of `run` if it is given, and prints its table; returns the exit code."""
    from rlbench.results.summary.summarise import summarise

    console, progress = make_console(), progress_console()
    store.check_writable(out)
    if run is not None:
        if asked.scenario is not None:
            raise ValueError("--from-run --scenario: choose one; the run is the scenario")
        asked, line = from_run(asked, run, out)
        progress.print(Text(line), soft_wrap=True)
    cells, skipped = plan_predictions(asked)
    for line in skipped:
        progress.print(Text(line), soft_wrap=True)
    sweep = Sweep.create(out, cells, command)
    caller.tell(sweep.folder)
    predict_sweep(sweep, command, progress)
    if not caller.is_there():
        print_table(summarise(store.read_runs(sweep.folder)), console, explain=explain)
    console.print(Text(f"runs: {sweep.folder}"))
    return 0


def predict_sweep(sweep: Sweep, command: Sequence[str], console: Console) -> list[RunRecord]:
    """Predicts all cells of a sweep, and leaves a run folder for each; shows how far it is on the console."""
    about_machine = machine.describe()
    records: list[RunRecord] = []
    begun = LiveSweep.begins(len(sweep.cells))

    def state() -> LiveSweep:
        return begun.model_copy(update={"phase": "runs", "num_ended": len(records)})

    with (
        sweep.lock(),
        closing(LiveFile(lambda: sweep.folder, state)),
        Counted(console, len(sweep.cells)) as progress,
    ):
        why = {cell.to_json() for cell in asked_why(sweep.cells)}
        for cell in sweep.cells:
            progress.say(f"predicting {cell.label}")
            records.append(_predict(sweep, cell, command, about_machine, why=cell.to_json() in why))
            progress.advance()
    return records


def _predict(
    sweep: Sweep, cell: Cell, command: Sequence[str], about_machine: dict[str, Any], *, why: bool
) -> RunRecord:
    started_at, began = machine.now(), time.perf_counter()
    prediction = predict_cell(cell)
    gained = gains(cell, prediction) if why else {}
    name = sweep.run_name(cell)
    partial = sweep.folder / f"{store.PARTIAL_PREFIX}{name}"
    try:
        partial.mkdir()
        with ExitStack() as stack:
            made = stack.enter_context(Held(partial))
            stack.callback(made.remove, [partial])
            record = write_prediction(
                partial,
                cell,
                prediction,
                gained,
                sweep=sweep.id,
                name=name,
                command=command,
                about_machine=about_machine,
                started_at=started_at.isoformat(),
                duration_s=time.perf_counter() - began,
            )
            store.write_run(partial, record)
            store.publish(partial, sweep.folder / name)
    except OSError as error:
        raise ValueError(f"{partial}: cannot be written: {error.strerror}; earlier runs are kept") from None
    return record
