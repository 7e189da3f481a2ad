"""Judges whether a candidate learns worse than a baseline: by the env steps until a metric reaches a threshold.

Runs train until they get there, or as long as they may. A run that never got there would have needed more than it
spent. So where runs of the candidate did not, its env steps / the baseline's are more than what is shown: that can be a
regression, but does not pass. Where runs of the baseline did not, they are fewer: that can pass, but is no regression.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rlbench.results.records.work import read_work
from rlbench.results.statistics.intervals import LEVEL
from rlbench.results.statistics.learning_curves import Reached
from rlbench.results.summary.cells import CellRuns
from rlbench.results.summary.learned_cells import UNTIL, LearnedRun
from rlbench.results.verdicts.at_once import are_pairs
from rlbench.results.verdicts.comparable import why_not_comparable
from rlbench.results.verdicts.compare import Match, Runs, by_seed
from rlbench.results.verdicts.gate import LEAST_REPETITIONS, Check, Gate, judge_cells, judged, unjudged
from rlbench.results.verdicts.metrics import GOAL, Metric

TOLERANCE = 0.5
"""Share by which env steps may be more: what runs need differs much from seed to seed."""

MOST = {"success": 1.0}
"""What a metric can be."""

NOBODY = "no run of either side got there: give runs more time, or another goal"
BOUND = "so what is shown is a bound"


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What is to be learned: a metric of learning curves, and its threshold."""

    metric: str
    threshold: float

    def __str__(self) -> str:
        """As `rlbench run --until` takes it."""
        return f"{self.metric}>={self.threshold:.15g}"


def parse_goal(text: str) -> Goal:
    """The goal of `success>=0.9`. Raises ValueError for what is no least `success` or `return`, or can never be."""
    match = UNTIL.fullmatch(text)
    if match is None:
        raise ValueError(f"--learning {text}: must be success>=NUMBER or return>=NUMBER")
    goal = Goal(metric=match[1], threshold=float(match[2]))
    if goal.threshold > MOST.get(goal.metric, sys.float_info.max):
        raise ValueError(f"--learning {text}: nothing ever gets there")
    return goal


def judge_learning(
    baseline: Runs, candidate: Runs, *, goal: Goal, tolerance: float = TOLERANCE, level: float = LEVEL
) -> Gate:
    """Compares the env steps that runs of both sides needed; arguments as of `judge`."""

    def checks(match: Match, before: CellRuns, after: CellRuns | None) -> list[Check]:
        return [_check(match, before, after, goal, tolerance, level)] if before.finished else []

    return judge_cells(baseline, candidate, checks, tolerance=tolerance, level=level)


def _check(match: Match, before: CellRuns, after: CellRuns | None, goal: Goal, tolerance: float, level: float) -> Check:
    sides = [by_seed(before), by_seed(after)]
    why_not = why_not_comparable(before, after, read_work)
    reached: list[list[Reached]] = [[], []]
    if not why_not:
        try:
            reached = [
                [LearnedRun.read(run, [goal.metric]).reach(goal.metric, goal.threshold, "env_steps") for run in side]
                for side in sides
            ]
        except ValueError as problem:
            why_not = f"what was learned cannot be read: {problem}"
    costs = [[each.cost for each in side] for side in reached]
    if any(cost <= 0 for side in costs for cost in side):
        why_not = "what was learned cannot be read: a run has no series of it"
    missed = [sum(each.censored for each in side) for side in reached]
    metric = Metric(name=GOAL, title=f"{before.summary.unit} to {goal}", higher_is_better=False)
    check = unjudged(match, before, metric, costs, tolerance, why_not)
    counts = len(sides[0]), len(sides[1])
    if why_not:
        return check.model_copy(update={"num_runs": counts})
    if missed == [*counts]:
        outcome = "not comparable" if min(counts) >= LEAST_REPETITIONS else "inconclusive"
        return check.model_copy(update={"outcome": outcome, "reason": NOBODY})
    paired = are_pairs(*[[run.record for run in side] for side in sides])
    return _with_missed(judged(check.model_copy(update={"paired": paired}), costs, level), missed)


def _with_missed(check: Check, missed: Sequence[int]) -> Check:
    """Takes back what runs that never got there leave open."""
    before, after = missed
    said = [
        f"{num} of {of} runs of the {side} never got there"
        for side, num, of in zip(("baseline", "candidate"), missed, check.num_runs, strict=True)
        if num
    ]
    if not said:
        return check
    if not (check.outcome == "passed" and not after) and not (check.outcome == "regression" and not before):
        update = {"outcome": "inconclusive", "repetitions": None, "reason": "; ".join([*said, BOUND])}
        return check.model_copy(update=update)
    return check.model_copy(update={"reason": "; ".join([*said, check.reason])})
