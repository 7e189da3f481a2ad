"""The metrics that a gate judges: figures of a run, by the first of which it passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlbench.results.records import units
from rlbench.results.records.schema import RunRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """What is judged, and whether higher or lower is better."""

    name: str
    title: str
    higher_is_better: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure(Metric):
    """A figure of a run."""

    of: Callable[[RunRecord], float | None]


METRICS = (
    Figure(name="steps_per_s", title="steps/s", higher_is_better=True, of=lambda run: run.figures.steps_per_s),
    Figure(
        name="env_steps_per_s", title=units.ENV_RATE, higher_is_better=True, of=lambda run: run.figures.env_steps_per_s
    ),
    Figure(name="duration_s", title="time of a run (s)", higher_is_better=False, of=lambda run: run.duration_s),
    Figure(
        name="lag_mean",
        title="policy lag",
        higher_is_better=False,
        of=lambda run: None if run.figures.lag is None else run.figures.lag.mean,
    ),
    Figure(
        name="memory_bytes",
        title="memory",
        higher_is_better=False,
        of=lambda run: run.figures.memory_bytes.value,
    ),
)
GOAL = "env_steps_to_goal"
"""What a gate of learning judges (`results/verdicts/learning.py`)."""
MAIN = frozenset({METRICS[0].name, GOAL})
"""The metrics by which a gate passes."""


def level_beside(level: float) -> float:
    """Level of the intervals of the metrics beside steps/s: together they are wrong as seldom as steps/s are."""
    return 1 - (1 - level) / (len(METRICS) - 1)
