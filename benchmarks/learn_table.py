"""The table of how soon systems learn: medians over seeds; runs that missed the threshold are marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlbench.results.statistics.intervals import LEVEL
from rlbench.results.statistics.learning_curves import Curve, area_under

COMPARED = "sync"
"""Our system that a library's is held against: it collects and learns in turn, as that does."""
LEAST_CURVES = 2
"""Of each, for an interval."""


def is_compared(system: str) -> bool:
    """Whether a system, with its settings, is the one that a library's is held against."""
    return system.partition(":")[0] == COMPARED


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What is to be learned."""

    scenario: str
    until: str
    """The threshold, as `rlbench run --until` takes it, with >=."""
    seeds: tuple[int, ...]
    env_steps: int | None = None
    """Env steps after which a run is censored, beside the seconds."""
    peer: str | None = None
    """A system of a library whose learning curve is held against `sync`'s; both then run for all of `env_steps`."""
    peer_scenario: str = ""
    """The scenario with the settings that the library has published."""

    def is_whole(self, system: str) -> bool:
        """Whether a system goes on when it has reached the threshold."""
        return self.peer is not None and (is_compared(system) or system == self.peer)


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
    is_short = False
    for system in systems:
        runs = {run.seed: run for run in results if run.system == system}
        if runs:
            is_short |= len(runs) < len(seeds)
            each = "; ".join(_both(runs[seed]) if seed in runs else "none" for seed in seeds)
            medians = (_median(list(runs.values()), figure) for figure in (_env_steps, _seconds))
            lines.append(f"| `{system}` | {' | '.join(medians)} | {each} |")
    if any(not run.reached for run in results):
        lines += ["", "`>`: not reached within the limit, a lower bound."]
    if is_short:
        lines += ["", "none: no run of this seed finished; the medians are without it."]
    return "\n".join(lines)


def compared(ours: Sequence[Curve], theirs: Sequence[Curve], peer: str) -> str:
    """Areas under the curves of `COMPARED` and of a peer, over the env steps that all cover, and their difference.

    Welch's interval, as `results.summary.learned_cells` has it. Says what lacks where there are not two of each.
    """
    if min(len(ours), len(theirs)) < LEAST_CURVES:
        return f"\n{COMPARED} and {peer}: an interval needs {LEAST_CURVES} curves of each"
    begin = max(float(curve.env_steps[0]) for curve in (*ours, *theirs))
    limit = min(float(curve.env_steps[-1]) for curve in (*ours, *theirs))
    a, b = ([area_under(curve, "env_steps", limit, begin=begin) for curve in each] for each in (ours, theirs))
    of_a, of_b = np.array(a, float), np.array(b, float)
    ends = stats.ttest_ind(of_a, of_b, equal_var=False).confidence_interval(LEVEL)
    each = ", ".join(f"{area:,.0f}" for area in of_a), ", ".join(f"{area:,.0f}" for area in of_b)
    return (
        f"\nmean return from {begin:,.0f} to {limit:,.0f} env steps: {COMPARED} {of_a.mean():,.0f} ({each[0]}), "
        f"{peer} {of_b.mean():,.0f} ({each[1]}); difference {of_a.mean() - of_b.mean():+,.0f}, "
        f"95 % {ends.low:+,.0f} to {ends.high:+,.0f}"
    )


def _env_steps(run: Trained) -> float:
    return run.env_steps


def _seconds(run: Trained) -> float:
    return run.seconds


def _median(runs: Sequence[Trained], figure: Callable[[Trained], float]) -> str:
    return marked(*bounded_median([(figure(run), run.reached) for run in runs]))


def _both(run: Trained) -> str:
    return f"{marked(run.env_steps, run.reached)} / {marked(run.seconds, run.reached)}"
