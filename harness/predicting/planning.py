"""Plans predictions as `rlbench run` plans runs, and has a cell's system predict it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.prediction import Predictable, Prediction
from rlbench.harness.metering.window import PROTOCOLS
from rlbench.harness.plan.planning import plan_with_skipped
from rlbench.harness.plan.request import EMULATED_SCENARIO, Request
from rlbench.harness.plan.scaling import check_scaling
from rlbench.harness.plan.system_list import CannotRun
from rlbench.results.reading.names import known_names

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.plan.cells import Cell
    from rlbench.harness.predicting.options import PredictOptions

PREDICTED_ROLLOUTS, PREDICTED_SECONDS = 6, 100.0
"""Rollouts of each rank, and seconds of the profile; the first ends a run where limits and protocol set no length."""


def plan_predictions(asked: PredictOptions) -> tuple[list[Cell], list[str]]:
    """The cells, and a line for each system of `all` that cannot be predicted. Raises ValueError."""
    if not asked.systems:
        raise ValueError("--systems: name at least one, such as sync,ddppo; `rlbench list systems` names them")
    if asked.protocol not in PROTOCOLS:
        raise ValueError(f"--protocol {asked.protocol}: unknown; {known_names(asked.protocol, PROTOCOLS)}")
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
