"""Formats one figure for a table: short, ASCII, and `n/a` if there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlbench.results.records import labels, units
from rlbench.results.records.schema import Interval, RunRecord
from rlbench.results.summary.document import CellSummary, Estimate

NONE = "n/a"


def number(value: float | None) -> str:
    """A number as `labels.number` writes it."""
    return NONE if value is None else labels.number(value)


def percent(fraction: float | None) -> str:
    """A fraction as a whole percentage."""
    return NONE if fraction is None else f"{100 * fraction:.0f}%"


def factor(value: float | None) -> str:
    """A ratio with two digits after the point."""
    return NONE if value is None else f"{value:.2f}"


def interval(ends: Interval | None, write: Callable[[float], str] = number) -> str:
    """Both ends of an interval."""
    return NONE if ends is None else f"{write(ends[0])} to {write(ends[1])}"


def interval_of(estimate: Estimate | None, write: Callable[[float], str] = number) -> str:
    """Both ends of a figure's interval, or how much more it would take to have one."""
    if estimate is not None and estimate.low is None and estimate.needs is not None:
        return f"{NONE}, needs at least {estimate.needs:,} {estimate.units}"
    return interval(ends(estimate), write)


def ends(estimate: Estimate | None) -> Interval | None:
    """The interval of a figure; None if it has none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    return estimate.low, estimate.high


def value(estimate: Estimate | None) -> float | None:
    """The figure, without its interval."""
    return None if estimate is None else estimate.value


def system(run: RunRecord) -> str:
    """The system with its settings."""
    return labels.system(run.cell)


def scenario(run: RunRecord) -> str:
    """The scenario with its settings."""
    return labels.scenario(run.cell)


def gpus(run: RunRecord) -> str:
    """A run's number of GPUs, and whether they are real."""
    kind = "predicted" if run.figures.predicted else "emulated" if run.figures.emulated else "measured"
    return ranks(run.cell.gpus, kind, run.cell.device)


def gpus_of(cell: CellSummary) -> str:
    """A cell's number of GPUs, and whether they are real."""
    return ranks(cell.gpus, cell.kind, cell.device)


def ranks(number_of: int, kind: str, device: str) -> str:
    """A number of GPUs or CPU ranks, and whether GPUs are real: `8`, `8 (emulated)`, `2 (CPU)`."""
    said = kind if kind != "measured" else "CPU" if device == "cpu" else ""
    return f"{number_of} ({said})" if said else str(number_of)


def steps_per_s(cell: CellSummary) -> str:
    """The rate; if no run finished, how the runs ended: `failed`, or `failed, 2 timed-out`."""
    if cell.steps_per_s is not None or "finished" in cell.statuses:
        return number(value(cell.steps_per_s))
    return ", ".join(status if count == 1 else f"{count} {status}" for status, count in cell.statuses.items())


def env_steps_per_s(cell: CellSummary) -> str:
    """The rate of env steps: of a cell whose environments have one agent, its rate."""
    own = value(cell.steps_per_s) if cell.unit == "env steps" else cell.env_steps_per_s
    return number(own)


def rates(cell: CellSummary) -> str:
    """A cell's rates with their units: `1,234 steps/s`, or `1,234 agent steps/s, 411 env steps/s`."""
    known = (steps_per_s(cell), env_steps_per_s(cell))
    return ", ".join(f"{said} {unit}" for said, unit in zip(known, units.rates(cell.unit), strict=False))


def shares(time_shares: Mapping[str, float], most: int) -> str:
    """The `most` largest time shares, if at least 1 %: `wait:straggler 20%, learn 13%`."""
    largest = sorted(time_shares.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{span} {percent(share)}" for span, share in largest if share >= 0.01) or NONE


def lag(cell: CellSummary) -> str:
    """Mean and largest policy lag."""
    return NONE if cell.lag_mean is None else f"{cell.lag_mean:.1f} ({cell.lag_max or 0:.0f})"


def seeds(numbers: Sequence[int]) -> str:
    """Seeds as `--seeds` takes them: `0,1`, or `0..4`."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]}..{numbers[-1]}"
    return ",".join(map(str, numbers))
