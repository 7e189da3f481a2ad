"""The table of how soon systems learn: medians over seeds; runs that missed the threshold are marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What is to be learned."""

    scenario: str
    until: str
    """The threshold, as `rlbench run --until` takes it, with >=."""
    seeds: tuple[int, ...]
    env_steps: int | None = None
    """Env steps after which a run is censored, beside the seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """One run."""

    system: str
    seed: int
    reached: bool
    """Whether it reached the threshold; otherwise it was censored, and its figures are lower bounds."""
    env_steps: int
    """Env steps until the run ended, over all its environments."""
    seconds: float
    """Seconds of training until the run ended."""


def bounded_median(figures: Sequence[tuple[float, bool]]) -> tuple[float, bool]:
    """The median of figures of which some are only lower bounds.

    Args:
        figures: (figure, whether it was reached), at least one. Censored ones count as larger than all that were
            reached: they were given as much time as any run may take.

    Returns:
        (the median, whether it was reached: False for a lower bound). For an even number, the mean of the middle two.
    """
    ordered = sorted(figures, key=lambda figure: (not figure[1], figure[0]))
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return sum(value for value, _ in middle) / len(middle), all(reached for _, reached in middle)


def marked(figure: float, reached: bool) -> str:
    """`12,345`, or `> 12,345` for a lower bound."""
    return f"{'' if reached else '> '}{figure:,.0f}"


def table(results: Sequence[Trained], systems: Sequence[str], seeds: Sequence[int]) -> str:
    """Markdown: env steps and seconds to the threshold, a row for each system that has results, in the order given."""
    lines = [
        "| system | env steps, median | seconds, median | each seed: env steps / seconds |",
        "| --- | ---: | ---: | --- |",
    ]
    for system in systems:
        runs = {run.seed: run for run in results if run.system == system}
        if runs:
            each = "; ".join(_both(runs[seed]) if seed in runs else "none" for seed in seeds)
            medians = (_median(list(runs.values()), figure) for figure in (_env_steps, _seconds))
            lines.append(f"| `{system}` | {' | '.join(medians)} | {each} |")
    if any(not run.reached for run in results):
        lines += ["", "`>`: not reached within the limit, a lower bound."]
    if "none" in "".join(lines):
        lines += ["", "none: no run of this seed finished; the medians are without it."]
    return "\n".join(lines)


def _env_steps(run: Trained) -> float:
    return run.env_steps


def _seconds(run: Trained) -> float:
    return run.seconds


def _median(runs: Sequence[Trained], figure: Callable[[Trained], float]) -> str:
    return marked(*bounded_median([(figure(run), run.reached) for run in runs]))


def _both(run: Trained) -> str:
    return f"{marked(run.env_steps, run.reached)} / {marked(run.seconds, run.reached)}"
