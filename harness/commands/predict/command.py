"""What `rlbench predict` does: plans a sweep as `rlbench run` does, and has each cell's system predict it.

It is one process with one thread, so nothing can time out. It leaves nothing behind but run folders, each of which
appears by one rename.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from harness.commands.predict.from_run import from_run
from harness.commands.predict.gains import asked_why, gains
from harness.commands.predict.options import PredictOptions
from harness.commands.predict.record import write_prediction
from harness.contract.budget import Limits
from harness.contract.prediction import Predictable, Prediction
from harness.machine import machine
from harness.metering.window import PROTOCOLS
from harness.plan.cells import Cell
from harness.plan.planning import plan_with_skipped
from harness.plan.request import EMULATED_SCENARIO, Request
from harness.plan.scaling import check_scaling
from harness.plan.system_list import CannotRun
from harness.processes.held import Held
from harness.run.sweep import Sweep
from reports.terminal.table import make_console, print_table
from results.records import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from harness.contract.scenario import Scenario
    from results.records.schema import RunRecord

PREDICTED_ROLLOUTS, PREDICTED_SECONDS = 6, 100.0
"""Rollouts of each rank, and seconds of the profile; the first ends a run where limits and protocol set no length."""


def plan_predictions(asked: PredictOptions) -> tuple[list[Cell], list[str]]:
    """The cells, and a line for each system of `all` that cannot be predicted. Raises ValueError."""
    if not asked.systems:
        raise ValueError("--systems: name at least one, such as sync,ddppo; `rlbench list systems` names them")
    if asked.protocol not in PROTOCOLS:
        raise ValueError(f"--protocol {asked.protocol}: unknown; known: {', '.join(PROTOCOLS)}")
    cells, skipped = plan_with_skipped(
        Request(
            systems=asked.systems,
            gpus=asked.gpus,
            scenarios=asked.scenario or EMULATED_SCENARIO,
            workloads=asked.workload or "homogeneous",
            seeds=asked.seeds,
            device="predicted",
            oversubscribe=False,
            protocol=asked.protocol,
            scaling=check_scaling(asked.scaling),
            limits=_limits(asked),
            stall_s=1.0,
            time_limit_s=1.0,
        ),
        check=check_predictable,
    )
    return [replace(cell, limits=_few_rollouts(cell)) if cell.limits.is_empty else cell for cell in cells], skipped


def _limits(asked: PredictOptions) -> Limits:
    """The length of each run; empty where it depends on the cell."""
    limits = Limits(iterations=asked.iterations, seconds=asked.seconds, env_steps=asked.env_steps)
    if not limits.is_empty or asked.protocol == "steady":
        return limits
    protocol = PROTOCOLS[asked.protocol]
    return Limits(iterations=protocol.num_iterations, seconds=protocol.seconds)


def _few_rollouts(cell: Cell) -> Limits:
    """A few rollouts of every rank, or some seconds: rollouts take too long where one learner learns for all."""
    _, scenario = cell.load()
    of_rank = scenario.num_envs * scenario.rollout_steps
    return Limits(env_steps=PREDICTED_ROLLOUTS * of_rank * cell.gpus, seconds=PREDICTED_SECONDS)


def check_predictable(cell: Cell) -> None:
    """Raises CannotRun for a system without a model, and for a cell that its model does not cover."""
    system, scenario = cell.load()
    reason: str | None = "it has no model; `rlbench run` measures it"
    if isinstance(system, Predictable):
        reason = system.why_not_predicted(scenario, cell.limits)
    if reason:
        raise CannotRun(f"{cell.system} on {cell.scenario}: {reason}")


def predict_cell(cell: Cell, scenario: Scenario | None = None) -> Prediction:
    """Predicts one run that `check_predictable` has passed, on the cell's scenario or on one that stands for it."""
    system, own = cell.load()
    scenario = scenario or own
    assert isinstance(system, Predictable)
    if hasattr(scenario, "time_scale"):
        scenario = replace(scenario, time_scale=1.0)  # type: ignore[type-var]  # records are in the profile's seconds
    return system.predict(scenario, cell.gpus, cell.seed, cell.limits)


def print_predictions(asked: PredictOptions, run: Path | None, out: Path, command: Sequence[str]) -> int:
    """Predicts a sweep, from the profile of `run` if it is given, and prints its table; returns the exit code."""
    from results.summary.summarise import summarise

    console = make_console()
    store.check_writable(out)
    if run is not None:
        if asked.scenario is not None:
            raise ValueError("--from-run --scenario: choose one; the run is the scenario")
        asked, line = from_run(asked, run, out)
        console.print(Text(line))
    cells, skipped = plan_predictions(asked)
    for line in skipped:
        console.print(Text(line))
    sweep = Sweep.create(out, cells, command)
    predict_sweep(sweep, command, console)
    console.print()
    print_table(summarise(store.read_runs(sweep.folder)), console)
    console.print(Text(f"runs: {sweep.folder}"))
    return 0


def predict_sweep(sweep: Sweep, command: Sequence[str], console: Console) -> list[RunRecord]:
    """Predicts all cells of a sweep, and leaves a run folder for each."""
    about_machine = machine.describe()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    records = []
    with sweep.lock(), Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(sweep.cells))
        why = {cell.to_json() for cell in asked_why(sweep.cells)}
        for cell in sweep.cells:
            progress.update(task, description=f"predicting {cell.label}")
            records.append(_predict(sweep, cell, command, about_machine, why=cell.to_json() in why))
            progress.advance(task)
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
