"""The rates of points, which are systems on numbers of GPUs, as the systems' models predict them: means over seeds.

No run folders are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from rlbench.harness.contract.envs import envs_per_batch
from rlbench.harness.contract.prediction import Profiled, Timed
from rlbench.harness.plan import registry
from rlbench.harness.plan.overrides import split_scenario
from rlbench.harness.predicting.options import PredictOptions
from rlbench.harness.predicting.planning import plan_predictions, predict_cell
from rlbench.harness.predicting.record import as_left
from rlbench.harness.run.record import reduce

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.plan.cells import Cell

SIMULATED_ENVS, SIMULATED_BLOCKS = 256, 16
"""Environments and blocks that the mean time of an env step is taken over: a million steps, 256 in a block."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RatePoint:
    """What one rate belongs to, over all seeds."""

    system: str | None
    """As `--systems` takes one; None: the environments alone, as fast as the cores of their GPUs step them."""
    gpus: int = 1
    scenario: str
    """As `--scenario` takes one."""
    workload: str = "homogeneous"


Rates = Mapping[RatePoint, float]
"""Env steps/s by point; points without a rate are left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Length:
    """How long points are predicted for, and how often."""

    protocol: str = "steady"
    seconds: float | None = None
    """Length of each predicted run in the profile's seconds; None: as long as the protocol says."""
    num_seeds: Callable[[int], int]
    """Number of runs to predict, by GPU count; their seeds are 0, 1, 2, …"""


def plan_point(point: RatePoint, length: Length) -> list[Cell]:
    """The cells whose mean is predicted for a point, one for each seed. Raises ValueError."""
    assert point.system is not None
    num_seeds = length.num_seeds(point.gpus)
    cells, _ = plan_predictions(
        PredictOptions(
            systems=point.system,
            gpus=str(point.gpus),
            scenario=point.scenario,
            workload=point.workload,
            seeds=f"0..{num_seeds - 1}",
            protocol=length.protocol,
            seconds=length.seconds,
        )
    )
    if len(cells) != num_seeds:
        raise ValueError(f"{point.system} on {point.scenario}: must be one system on one scenario")
    return cells


class Planned:
    """Points that are predicted again and again, with other numbers in their profile each time."""

    def __init__(self, points: Sequence[RatePoint], length: Length) -> None:
        self._cells = {point: [] if point.system is None else plan_point(point, length) for point in points}

    def rates(self, numbers: Mapping[str, float] | None = None, *, least: float | None = None) -> Rates:
        """Env steps/s of the points.

        Args:
            numbers: what differs in the profile, by dotted key.
            least: env steps/s of a run in which nothing is learned.

        Raises:
            ValueError: something has no model, or breaks a rule of profiles; or, without `least`, nothing is learned.
        """
        return {point: self._rate(point, numbers, least) for point in self._cells}

    def _rate(self, point: RatePoint, numbers: Mapping[str, float] | None, least: float | None) -> float:
        if point.system is None:
            name, settings = split_scenario(point.scenario, "--scenario")
            scenario = registry.load_scenario(name, point.workload, settings)
            return simulation_rate(_with(scenario, numbers), point.gpus)
        return fmean(_rate_of(cell, numbers, least) for cell in self._cells[point])


def _rate_of(cell: Cell, numbers: Mapping[str, float] | None, least: float | None) -> float:
    scenario = None if numbers is None else _with(cell.load()[1], numbers)
    measured = reduce(as_left(cell, predict_cell(cell, scenario)))
    if measured.problem is None and measured.figures.steps_per_s is not None:
        return measured.figures.steps_per_s
    if least is None:
        raise ValueError(f"predict: {cell.label}: {measured.problem or 'no rate'}")
    return least


def _with(scenario: Scenario, numbers: Mapping[str, float] | None) -> Scenario:
    if numbers is None:
        return scenario
    if not isinstance(scenario, Profiled):
        raise ValueError(f"{scenario.name}: has no profile; emulated/… has")  # noqa: TRY004  it is for the user
    return scenario.with_numbers(numbers)


def simulation_rate(scenario: Scenario, gpus: int) -> float:
    """Env steps/s of environments that wait for nothing but a core: cores / mean time of a step with its resets.

    Raises ValueError for a scenario that does not state its times.
    """
    if not isinstance(scenario, Timed):
        raise ValueError(f"predict: {scenario.name}: its times are not known; emulated/… states them")  # noqa: TRY004  it is for the user
    of_batch = envs_per_batch(scenario)
    num_drawn = max(1, SIMULATED_ENVS // of_batch)
    times = scenario.times(range(num_drawn * of_batch))
    drawn = [times.draw(range(num_drawn)) for _ in range(SIMULATED_BLOCKS)]
    step_s = math.fsum(float(seconds.mean() + scenario.reset_s * ends.mean()) for seconds, ends in drawn) / len(drawn)
    return gpus * of_batch * (scenario.gpu_costs.cores or scenario.num_envs // of_batch) / step_s
