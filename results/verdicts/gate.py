"""Judges whether a candidate has become worse than a baseline, cell by cell and metric by metric.

A *regression* is a change for the worse beyond the tolerance that is more than noise: the whole interval of candidate /
baseline lies on the wrong side of the limit. A check has *passed* if the whole interval lies on the right side (a test
of non-inferiority). If the limit is inside the interval, the check is *inconclusive*: it says how many repetitions
would settle it if the ratio stays the same. A gate passes by the samples/s of all its cells. Another metric can be a
regression, but if it would be inconclusive it is *not judged*, and does not stop the gate.

The runs of a cell on one side are its repetitions: they differ in their seeds, or repeat one seed. Where both sides ran
the same seeds, once each, they are compared in *pairs*, because a seed that draws slow environments is slow on both
sides. Where the runs of all pairs ran at once, their steps/s are those of the time that both share
(`results/verdicts/at_once.py`). A single run on a side says nothing of other runs, whatever its iterations say.

A partial measurement never passes. A cell of the baseline is *not comparable* if the candidate has not finished it, if
more runs of the candidate failed, if anything but the commit differs (between the runs of a pair, where there are
pairs), or if environments whose work is still (`--protocol still`) did not do the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import computed_field

from rlbench.results.records import labels, units
from rlbench.results.records.store import StoredRun
from rlbench.results.records.work import ReadWork, read_work
from rlbench.results.statistics import intervals
from rlbench.results.statistics.intervals import LEVEL
from rlbench.results.summary.cells import CellRuns
from rlbench.results.summary.document import Document, Estimate, Finding, Kind
from rlbench.results.summary.findings import find_all
from rlbench.results.verdicts.at_once import all_at_once, are_pairs
from rlbench.results.verdicts.comparable import why_not_comparable
from rlbench.results.verdicts.compare import Match, Runs, by_seed, newest_cells
from rlbench.results.verdicts.metrics import MAIN, METRICS, Metric, level_beside

GATE_VERSION = 2
TOLERANCE = 0.05
LEAST_REPETITIONS = 3
"""Repetitions of each side that are suggested after a single run; the interval of two runs is very wide."""
MOST_REPETITIONS = 1000
"""If more are needed, the change is about as large as the tolerance, and no number is suggested."""
Outcome = Literal["passed", "regression", "inconclusive", "not comparable", "not judged"]
EXIT_CODES: dict[Outcome, int] = {"passed": 0, "regression": 1, "inconclusive": 3, "not comparable": 4}
"""Exit codes of a whole gate; 2 is a usage error."""
RANKED: tuple[Outcome, ...] = ("regression", "not comparable", "inconclusive", "passed")
"""Outcomes of a gate, the worst first."""


class Check(Document):
    """The verdict on one metric of one cell."""

    system: str
    scenario: str
    workload: str
    gpus: int
    device: str
    kind: Kind
    metric: str
    title: str
    higher_is_better: bool
    baseline: float | None = None
    """Mean over the baseline's runs."""
    candidate: float | None = None
    num_runs: tuple[int, int]
    """Number of finished runs of baseline and candidate that have the metric."""
    ratio: Estimate | None = None
    """Candidate / baseline; the interval has the gate's level, or that of `level_beside`."""
    paired: bool = False
    """Whether the interval is over pairs of runs with the same seed; otherwise sides are independent."""
    at_once: bool = False
    """Whether the figures are of the time in which both runs of a pair ran."""
    limit: float
    """The ratio at which a regression begins."""
    outcome: Outcome
    reason: str
    repetitions: int | None = None
    """Repetitions of each side that would settle an inconclusive check, if that can be estimated."""

    @property
    def where(self) -> str:
        """The cell in words: `ver, emulated/open-fridge, homogeneous, 8 emulated GPUs`."""
        return f"{self.system}, {self.scenario}, {self.workload}, {labels.ranks(self.gpus, self.device)}"


class Gate(Document):
    """The result of a gate, as one document."""

    gate_version: int = GATE_VERSION
    baseline: str
    """The name that the user gave: a folder, a revision."""
    candidate: str
    tolerance: float
    level: float
    """Level of the intervals: 0.95, but nearer to 1 for a look before the end."""
    checks: list[Check]
    findings: list[Finding]
    """What may spoil the figures of either side."""

    @computed_field  # type: ignore[prop-decorator]  # puts the property into the document
    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the checks; inconclusive if none was judged, not comparable if there is no check."""
        there = {check.outcome for check in self.checks}
        return next((outcome for outcome in RANKED if outcome in there), "inconclusive" if there else "not comparable")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """0 passed, 1 regression, 3 inconclusive, 4 not comparable."""
        return EXIT_CODES[self.outcome]

    @property
    def repetitions(self) -> int | None:
        """Repetitions of each side that would settle all inconclusive checks, if that can be estimated."""
        return max((check.repetitions for check in self.checks if check.repetitions is not None), default=None)

    @property
    def sentence(self) -> str:
        """The outcome in one line."""
        counts = Counter(check.outcome for check in self.checks)
        said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in (*RANKED, "not judged") if counts[outcome])
        line = f"{self.outcome}: {said or 'nothing was measured'}"
        if self.outcome == "inconclusive" and self.repetitions is not None:
            least = min(min(check.num_runs) for check in self.checks) < intervals.LEAST_SEEDS
            line += f"; {self.repetitions} repetitions of each side {'at least' if least else 'would settle it'}"
        return line

    def to_json(self) -> str:
        """The document as JSON."""
        return self.model_dump_json(indent=1) + "\n"


def pooled(runs: Sequence[StoredRun], name: str) -> list[StoredRun]:
    """Puts runs of several sweeps into one, as repetitions of its cells, for a side that was measured step by step."""
    return [
        StoredRun(
            path=run.path,
            record=run.record.model_copy(
                update={
                    "sweep": name,
                    "cell": run.record.cell.model_copy(update={"hash": f"{run.record.cell.hash}-{number}"}),
                }
            ),
            parts=run.parts,
        )
        for number, run in enumerate(runs)
    ]


def check_tolerance(tolerance: float) -> None:
    """Raises ValueError unless the tolerance is between 0 and 1."""
    if not 0 < tolerance < 1:
        raise ValueError(f"--tolerance {tolerance}: must be above 0 and below 1, a share: 0.05")


def judge(
    baseline: Runs, candidate: Runs, *, tolerance: float = TOLERANCE, level: float = LEVEL, read: ReadWork = read_work
) -> Gate:
    """Compares a candidate with a baseline.

    Args:
        baseline: the runs that the candidate must not be worse than; the newest sweep that has a cell counts for it.
        candidate: the runs to judge, chosen in the same way.
        tolerance: share by which a metric may be worse, between 0 and 1.
        level: level of the intervals of steps/s.
        read: gives what a run did; who judges the same runs again may remember it.

    Raises ValueError for another tolerance.
    """

    def checks(match: Match, before: CellRuns, after: CellRuns | None) -> list[Check]:
        return _checks(match, before, after, tolerance, level, read)

    return judge_cells(baseline, candidate, checks, tolerance=tolerance, level=level)


ChecksOf = Callable[[Match, CellRuns, CellRuns | None], list[Check]]
"""Judges a cell of the baseline beside that of the candidate, if it has it."""


def judge_cells(baseline: Runs, candidate: Runs, checks_of: ChecksOf, *, tolerance: float, level: float) -> Gate:
    """A gate of all cells of a baseline, of which the newest count. Raises ValueError for a wrong tolerance."""
    check_tolerance(tolerance)
    before, after = newest_cells(baseline.runs), newest_cells(candidate.runs)
    checks = [check for match, cell in before.items() for check in checks_of(match, cell, after.get(match))]
    alike = baseline.name == candidate.name
    sides = (("baseline ", baseline), ("candidate ", candidate))
    findings = [
        finding.model_copy(update={"text": f"{role if alike else ''}{side.name}: {finding.text}"})
        for role, side in sides
        for finding in find_all([run.record for run in side.runs], side.unreadable)
    ]
    return Gate(
        baseline=baseline.name,
        candidate=candidate.name,
        tolerance=tolerance,
        level=level,
        checks=checks,
        findings=findings,
    )


def _checks(
    match: Match, before: CellRuns, after: CellRuns | None, tolerance: float, level: float, read: ReadWork
) -> list[Check]:
    """The checks of all metrics of a cell; only of steps/s where the cell cannot be judged."""
    if not before.finished:
        return []  # the baseline has no figures to compare with
    why_not = why_not_comparable(before, after, read)
    stored = [by_seed(cell) for cell in (before, after)]
    runs = [[run.record for run in each] for each in stored]
    at_once = None if why_not else all_at_once(*stored)
    checks = []
    for metric in METRICS[:1] if why_not else METRICS:
        shared = at_once if metric is METRICS[0] else None
        known = shared or [[value for run in each if (value := metric.of(run)) is not None] for each in runs]
        if metric is not METRICS[0] and not all(known):
            continue
        counts = [len(each) for each in known]
        whole = counts == [len(each) for each in runs]
        about = metric
        if metric is METRICS[0]:
            about = replace(metric, title=units.rate(before.summary.unit))
        check = unjudged(match, before, about, known, tolerance, why_not)
        paired = not why_not and whole and are_pairs(*runs)
        check = check.model_copy(update={"paired": paired, "at_once": shared is not None})
        checks.append(check if why_not else judged(check, known, level))
    return checks


def unjudged(
    match: Match, before: CellRuns, metric: Metric, known: Sequence[Sequence[float]], tolerance: float, why_not: str
) -> Check:
    """The check of a metric of a cell, before its ratio and its outcome are known.

    `known`: the metric of the runs of both sides; `why_not`: why it cannot be judged.
    """
    return Check(
        system=match[0],
        scenario=match[1],
        workload=match[2],
        gpus=match[3],
        device=match[4],
        kind=before.summary.kind,
        metric=metric.name,
        title=metric.title,
        higher_is_better=metric.higher_is_better,
        baseline=_mean(known[0]),
        candidate=_mean(known[1]),
        num_runs=(len(known[0]), len(known[1])),
        limit=1 - tolerance if metric.higher_is_better else 1 + tolerance,
        outcome="not comparable",
        reason=why_not,
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def judged(check: Check, known: Sequence[Sequence[float]], level: float) -> Check:
    """Adds the ratio, the outcome and the reason to a check."""
    level = level if check.metric in MAIN else level_beside(level)
    if check.baseline == 0 or check.candidate == 0:
        return _judged_zero(check, known)
    assert check.baseline is not None
    assert check.candidate is not None
    ratio = check.candidate / check.baseline
    if min(check.num_runs) < intervals.LEAST_SEEDS:
        return _not_repeated(check.model_copy(update={"ratio": Estimate(value=ratio), "paired": False}))
    ends = _interval(known, level, paired=check.paired)
    if ends is None:
        return check.model_copy(update={"outcome": "not judged", "reason": "it is 0 in some runs"})
    num = min(check.num_runs)
    estimate = Estimate(value=ratio, low=ends[0], high=ends[1], units="seeds", num_units=num)
    outcome, reason = _outcome(estimate, check.limit, higher_is_better=check.higher_is_better)
    needed = None
    if outcome == "inconclusive":
        needed = repetitions(estimate, check.limit, num, level, paired=check.paired)
        reason += f": {needed} repetitions of each side would settle it" if needed else ": it is about the tolerance"
        if check.metric not in MAIN:
            outcome, needed = "not judged", None
    return check.model_copy(update={"ratio": estimate, "outcome": outcome, "reason": reason, "repetitions": needed})


def _interval(known: Sequence[Sequence[float]], level: float, *, paired: bool) -> tuple[float, float] | None:
    """The interval of candidate / baseline; None where it cannot be computed because of zeros."""
    if paired:
        pairs = intervals.of_pairs(known[1], known[0])
        assert pairs is not None
        return intervals.interval(pairs, level=level)
    before, after = (intervals.of_seeds(values) for values in known)
    assert before is not None
    assert after is not None
    return intervals.ratio_interval(after, before, level=level)


def _not_repeated(check: Check) -> Check:
    """The check where a side has a single run."""
    if check.metric not in MAIN:
        return check.model_copy(update={"outcome": "not judged", "reason": "a single run says nothing of others"})
    reason = f"a single run says nothing of others: it takes {LEAST_REPETITIONS} repetitions of each side at least"
    return check.model_copy(update={"outcome": "inconclusive", "reason": reason, "repetitions": LEAST_REPETITIONS})


def _judged_zero(check: Check, known: Sequence[Sequence[float]]) -> Check:
    """The check of a metric whose mean is 0 on a side, such as the lag of a lockstep system: it has no ratio."""
    if min(check.num_runs) < intervals.LEAST_SEEDS:
        return check.model_copy(update={"outcome": "not judged", "reason": "a single run says nothing of others"})
    better, worse = (known[1], known[0]) if check.higher_is_better else (known[0], known[1])
    if not any(worse):
        return check.model_copy(update={"outcome": "passed", "reason": "0 in every run"})
    if not any(better) and all(worse):
        return check.model_copy(update={"outcome": "regression", "reason": "it was 0 in every run of one side alone"})
    return check.model_copy(update={"outcome": "not judged", "reason": "it is 0 in some runs"})


def _outcome(ratio: Estimate, limit: float, *, higher_is_better: bool) -> tuple[Outcome, str]:
    assert ratio.low is not None
    assert ratio.high is not None
    low, high = (ratio.low, ratio.high) if higher_is_better else (1 / ratio.high, 1 / ratio.low)
    edge = limit if higher_is_better else 1 / limit
    if high < edge:
        return "regression", "worse by more than the tolerance, and not by chance"
    if low >= edge:
        return "passed", "not worse by more than the tolerance"
    return "inconclusive", "the noise is wider than what is left to the tolerance"


def repetitions(ratio: Estimate, limit: float, num_runs: int, level: float, *, paired: bool) -> int | None:
    """How many runs of each side it takes until the interval around the same ratio excludes the limit.

    On a logarithmic scale the half width of the interval is t(2 n - 2) s / sqrt(n) for n >= 2 runs of each side, and
    t(n - 1) s / sqrt(n) for n pairs. Returns None if it takes more than `MOST_REPETITIONS`.
    """
    from scipy import special

    assert ratio.low is not None
    assert ratio.high is not None
    half, distance = math.log(ratio.high / ratio.low) / 2, abs(math.log(ratio.value / limit))

    def quantile(num: int) -> float:
        return float(special.stdtrit(num - 1 if paired else 2 * num - 2, (1 + level) / 2))

    spread = half * math.sqrt(num_runs) / quantile(num_runs)
    if not distance:
        return None
    for num in range(num_runs + 1, MOST_REPETITIONS + 1):
        if quantile(num) * spread / math.sqrt(num) <= distance:
            return num
    return None
