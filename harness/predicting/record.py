"""Turns a prediction into a run folder, with a record and series like those of a real run, marked as predicted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.contract.traits import Traits
from rlbench.harness.machine import machine
from rlbench.harness.machine.telemetry import Readings
from rlbench.harness.run.figures import Clock, RunOutput
from rlbench.harness.run.learned_from import ENVIRONMENTS_FILE, parts_of
from rlbench.harness.run.record import cell_record, reduce, write_table
from rlbench.results.records import schema
from rlbench.results.records.parts import IN_STEP, LOST, SERIES_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.harness.contract.prediction import Prediction
    from rlbench.harness.plan.cells import Cell

_OF_RANK = ("learned", "reused", "discarded", "in_flight", "lag_sum", "lag_max")


class NoTelemetry(Readings):
    """The readings of a predicted run, which has no process to watch."""

    def __init__(self) -> None:
        super().__init__([], 0, "n/a: predicted, no process ran")


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedMeter:
    """What a rank's meter file would hold; blocks as in `harness.metering.meter_file`."""

    prediction: Prediction
    rank: int

    @property
    def num_envs(self) -> int:
        """Environments of the rank."""
        return int(self.prediction.of_envs["env_steps"].shape[1])

    @property
    def lane_index(self) -> int:
        """Index of the block of the rank's second thread."""
        return 1 + self.num_envs

    def count(self, index: int, name: str) -> int:
        """An integer counter of a block."""
        if index == 0:
            return int(self.prediction.of_ranks[name][self.rank]) if name in _OF_RANK else 0
        name = "env_steps" if name == "frames" else name  # one frame per env step
        return int(self.prediction.of_envs[name][self.rank, index - 1])

    def is_reported(self, name: str) -> bool:  # noqa: ARG002  a model knows all of it
        """A model reports everything."""
        return True

    def seconds(self, index: int, name: str) -> float:
        """A float counter of an environment's block, or the seconds spent in a kind of span."""
        return float(self.prediction.of_envs[name][self.rank, index - 1])

    def cpu_seconds(self, index: int, kind: str) -> tuple[float, float]:  # noqa: ARG002  no process has computed
        """CPU time in a kind of span of a block."""
        return 0.0, 0.0

    def total(self, name: str) -> int:
        """An integer counter, summed over the environments of the rank."""
        return sum(self.count(1 + env, name) for env in range(self.num_envs))


def as_left(cell: Cell, prediction: Prediction) -> RunOutput:
    """What the ranks of a real run would have left."""
    system, scenario = cell.load()
    in_step = Traits.of(system).in_step
    return RunOutput(
        cell=cell,
        clock=Clock(zero_s=0.0, time_scale=1.0),
        meters={rank: PredictedMeter(prediction=prediction, rank=rank) for rank in range(cell.gpus)},
        rows=[{**row, IN_STEP: in_step, LOST: False} for row in prediction.rows],
        episodes=[],
        telemetry=NoTelemetry(),
        spans=[],
        in_step=in_step,
        lost=(),
        fates=prediction.fates,
        parts=parts_of(scenario, cell)[0],
    )


def write_prediction(
    folder: Path,
    cell: Cell,
    prediction: Prediction,
    gains: dict[str, float],
    *,
    sweep: str,
    name: str,
    command: Sequence[str],
    about_machine: dict[str, Any],
    started_at: str,
    duration_s: float,
) -> schema.RunRecord:
    """Writes the series into the folder of a run that is not published yet, and returns its record."""
    left = as_left(cell, prediction)
    write_table(folder / SERIES_FILE, left.rows)
    measured = reduce(left)
    write_table(folder / ENVIRONMENTS_FILE, measured.environments)
    return schema.RunRecord(
        id=name,
        sweep=sweep,
        status="invalid" if measured.problem else "finished",
        reason=measured.problem,
        cell=cell_record(cell),
        configuration=cell.configuration(),
        counters=measured.counters,
        figures=measured.figures.model_copy(update={"gains": gains}),
        learned_from=measured.learned_from,
        machine=about_machine,
        packages=machine.packages(),
        commit=machine.commit(Path()),
        command=list(command),
        started_at=started_at,
        duration_s=duration_s,
    )
