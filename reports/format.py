"""How one figure of a run is written in a table: short, ASCII, and `n/a` where there is none."""

from __future__ import annotations

from typing import Any

from results.schema import Interval, RunRecord

NONE = "n/a"
SCENARIO_PREFIX = "scenario."
"""Of settings that belong to the scenario, not to the system."""


def number(value: float | None) -> str:
    """Three digits that count, and no fewer than all before the point: 1,234, 56.7, 0.0321."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}".rstrip(".")


def percent(fraction: float | None) -> str:
    """A fraction as a whole percentage."""
    return NONE if fraction is None else f"{100 * fraction:.0f}%"


def interval(ends: Interval | None) -> str:
    """Both ends of an interval."""
    return NONE if ends is None else f"{number(ends[0])} to {number(ends[1])}"


def system(run: RunRecord) -> str:
    """The system with what was overridden, as `--systems` takes it: `ddppo:preempt.p=0.8`."""
    own = {name: value for name, value in run.cell.settings.items() if not name.startswith(SCENARIO_PREFIX)}
    return ":".join([run.cell.system, *(f"{name}={_typed(value)}" for name, value in own.items())])


def scenario(run: RunRecord) -> str:
    """The scenario with what was overridden, as `--scenario` takes it: `vizdoom:num_envs=4`."""
    settings = run.cell.settings.items()
    own = {name.removeprefix(SCENARIO_PREFIX): value for name, value in settings if name.startswith(SCENARIO_PREFIX)}
    return ":".join([run.cell.scenario, *(f"{name}={_typed(value)}" for name, value in own.items())])


def _typed(value: Any) -> str:
    """A setting as the command line takes it."""
    if value is None:
        return "none"
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def gpus(run: RunRecord) -> str:
    """How many, and whether they are real."""
    if run.figures.predicted:
        return f"{run.cell.gpus} (predicted)"
    kind = " (emulated)" if run.figures.emulated else " (CPU)" if run.cell.device == "cpu" else ""
    return f"{run.cell.gpus}{kind}"


def steps_per_s(run: RunRecord) -> str:
    """The rate; for a run that did not finish or is invalid its status instead: its rate is no figure to compare."""
    return number(run.figures.steps_per_s) if run.status == "finished" else run.status


def scaling(run: RunRecord) -> str:
    """The scaling factor."""
    return NONE if run.figures.scaling_factor is None else f"{run.figures.scaling_factor:.2f}"


def scaling_interval(run: RunRecord) -> str:
    """The interval of the scaling factor."""
    ends = run.figures.scaling_factor_interval
    return NONE if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"


def shares(run: RunRecord, most: int) -> str:
    """The largest time shares of at least 1 %: `wait:straggler 20%, learn 13%`."""
    largest = sorted(run.figures.time_shares.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{span} {percent(share)}" for span, share in largest if share >= 0.01) or NONE


def lag(run: RunRecord) -> str:
    """Mean and largest policy lag."""
    return f"{run.figures.lag.mean:.1f} ({run.figures.lag.max:.0f})" if run.figures.lag else NONE
