"""The rates of points as the systems' models predict them: means over seeds. No run folders are made."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.commands.predict.command import plan_predictions, predict_cell
from harness.commands.predict.options import PredictOptions
from harness.commands.predict.record import as_left
from harness.contract.prediction import Timed
from harness.plan import registry
from harness.plan.overrides import split_settings
from harness.run.record import reduce

if TYPE_CHECKING:
    from rich.console import Console

    from harness.commands.reproduce.table import PaperTable, RatePoint, Rates
    from harness.plan.cells import Cell

SIMULATED_ENVS, SIMULATED_BLOCKS = 256, 16
"""Environments and blocks that the mean time of an env step is taken over: a million steps, 256 in a block."""


def plan_point(point: RatePoint, table: PaperTable) -> list[Cell]:
    """The cells whose mean is predicted for a point, one for each seed. Raises ValueError."""
    assert point.system is not None
    cells, _ = plan_predictions(
        PredictOptions(
            systems=point.system,
            gpus=str(point.gpus),
            scenario=point.scenario,
            workload=point.workload,
            seeds=f"0..{table.num_seeds(point.gpus) - 1}",
            protocol=table.protocol,
            seconds=table.seconds,
        )
    )
    return cells


def predict_rates(table: PaperTable, console: Console) -> Rates:
    """Env steps/s of all points of a table. Raises ValueError for what has no model."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    rates = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"predicting {table.name}", total=len(table.points))
        for point in table.points:
            cells = [] if point.system is None else plan_point(point, table)
            rates[point] = fmean(predict_rate(cell) for cell in cells) if cells else simulation_rate(point)
            progress.advance(task)
    return rates


def predict_rate(cell: Cell) -> float:
    """Env steps/s of one predicted run. Raises ValueError when the run would be invalid."""
    measured = reduce(as_left(cell, predict_cell(cell)))
    if measured.problem or measured.figures.steps_per_s is None:
        raise ValueError(f"predict: {cell.label}: {measured.problem or 'no rate'}")
    return measured.figures.steps_per_s


def simulation_rate(point: RatePoint) -> float:
    """Env steps/s of environments that wait for nothing but a core: cores / mean time of a step with its resets.

    Raises ValueError for a scenario that does not state its times.
    """
    name, settings = split_settings(point.scenario, "--scenario")
    scenario = registry.load_scenario(name, point.workload, settings)
    if not isinstance(scenario, Timed):
        raise ValueError(f"predict: {point.scenario}: its times are not known; emulated/… states them")  # noqa: TRY004  it is for the user
    times = scenario.times(range(SIMULATED_ENVS))
    drawn = [times.draw(range(SIMULATED_ENVS)) for _ in range(SIMULATED_BLOCKS)]
    step_s = math.fsum(float(seconds.mean() + scenario.reset_s * ends.mean()) for seconds, ends in drawn) / len(drawn)
    return point.gpus * (scenario.gpu_costs.cores or scenario.num_envs) / step_s
