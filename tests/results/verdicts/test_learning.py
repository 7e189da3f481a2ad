"""What a gate of learning says of made-up runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.verdicts.compare import Runs
from rlbench.results.verdicts.gate import Check
from rlbench.results.verdicts.learning import NOBODY, Goal, judge_learning, parse_goal
from tests.results.verdicts.test_gate import runs_of

GOAL = Goal(metric="success", threshold=0.9)
SPENT = 50
"""Iterations, of 100 env steps each, of a run that never gets there."""


def trained(folder: Path, name: str, needed: Sequence[int | None]) -> Runs:
    """A side whose runs, with seeds 0, 1, ..., get to the goal in so many iterations; None is never."""
    runs = []
    for seed, (run, num) in enumerate(zip(runs_of([100.0] * len(needed)), needed, strict=True)):
        path = folder / f"{name}-{seed}"
        path.mkdir()
        rows = SPENT if num is None else num
        values = np.full(rows, 0.5)
        if num is not None:
            values[-1] = 0.9
        frame = pd.DataFrame({"rank": 0, "iteration": range(rows), "learned": 100, "success": values})
        frame.assign(begin_s=np.arange(rows) * 1.0, end_s=np.arange(rows) + 1.0).to_parquet(path / SERIES_FILE)
        runs.append(replace(run, path=path))
    return Runs(name=name, runs=runs)


def judged(folder: Path, before: Sequence[int | None], after: Sequence[int | None]) -> Check:
    """The one check of the candidate's runs beside the baseline's."""
    (check,) = judge_learning(trained(folder, "main", before), trained(folder, "HEAD", after), goal=GOAL).checks
    return check


def test_env_steps_are_compared_in_pairs(tmp_path: Path) -> None:
    """Of runs that all got there: the means, and the ratio of each seed's; a half more is tolerated, and no more."""
    check = judged(tmp_path, [10, 12, 11], [25, 30, 28])
    assert (check.outcome, check.baseline, check.candidate, check.paired) == ("regression", 1100, 2766 + 2 / 3, True)
    assert check.title == "env steps to success>=0.9"
    assert check.limit == 1.5


def test_as_soon_passes_and_so_does_sooner(tmp_path: Path) -> None:
    """Equal, sooner, or within the tolerance; with more noise than that it is inconclusive."""
    cases = {"passed": ([10, 12, 11], [5, 6, 6], [12, 14, 13]), "inconclusive": ([5, 30, 11], [25, 6, 30])}
    for outcome, each in cases.items():
        for number, after in enumerate(each):
            folder = tmp_path / f"{outcome}-{number}"
            folder.mkdir()
            assert judged(folder, [10, 12, 11], after).outcome == outcome


def test_a_candidate_that_never_got_there_has_needed_more(tmp_path: Path) -> None:
    """What it spent is a bound: enough to be a regression, or, where it spent little more, for no answer."""
    check = judged(tmp_path, [10, 12, 11], [None, None, 40])
    assert check.outcome == "regression"
    assert check.reason.startswith("2 of 3 runs of the candidate never got there; worse by more than the tolerance")
    (tmp_path / "late").mkdir()
    late = judged(tmp_path / "late", [49, 50, 48], [None, 50, 49])
    assert (late.outcome, late.repetitions) == ("inconclusive", None)
    assert late.reason == "1 of 3 runs of the candidate never got there; so what is shown is a bound"


def test_a_baseline_that_never_got_there_proves_no_loss(tmp_path: Path) -> None:
    """A candidate that did is no worse; one that needed more than the baseline spent may be no worse either."""
    assert judged(tmp_path, [None, None, None], [20, 21, 22]).outcome == "passed"
    (tmp_path / "more").mkdir()
    assert judged(tmp_path / "more", [None, 10, 10], [200, 40, 40]).outcome == "inconclusive"


def test_what_cannot_be_judged(tmp_path: Path) -> None:
    """Where neither side got there, and where what was learned cannot be read, the cell is not comparable."""
    never = (None, None, None)
    check = judged(tmp_path, never, never)
    assert (check.outcome, check.reason) == ("not comparable", NOBODY)
    for name, before, after in (("two", never[:2], never[:2]), ("some", (20, 45, 30), (None, 30, None))):
        (tmp_path / name).mkdir()
        unclear = judged(tmp_path / name, before, after)
        assert (unclear.outcome, unclear.repetitions) == ("inconclusive", None)
    (tmp_path / "bad").mkdir()
    sides = trained(tmp_path / "bad", "main", [10, 11]), trained(tmp_path / "bad", "HEAD", [10, 11])
    (tmp_path / "bad" / "HEAD-1" / SERIES_FILE).write_bytes(b"PAR1")
    (unread,) = judge_learning(*sides, goal=GOAL).checks
    assert unread.outcome == "not comparable"
    assert "what was learned cannot be read" in unread.reason
    (tmp_path / "bad" / "HEAD-1" / SERIES_FILE).unlink()
    (missing,) = judge_learning(*sides, goal=GOAL).checks
    assert (missing.outcome, missing.num_runs) == ("not comparable", (2, 2))
    assert missing.reason == "what was learned cannot be read: a run has no series of it"


@pytest.mark.parametrize("text", ["success", "success<=0.9", "lag>=1", "success>=x", ""])
def test_goals_that_there_are_not(text: str) -> None:
    """A goal is a least success or return."""
    with pytest.raises(ValueError, match="must be success>=NUMBER or return>=NUMBER"):
        parse_goal(text)
    assert str(parse_goal("return >= 2e1")) == "return>=20"


@pytest.mark.parametrize("text", ["success>=1.01", "return>=1e999"])
def test_goals_that_nothing_reaches(text: str) -> None:
    """A success is at most 1, and a return is finite: both are refused before anything is built."""
    with pytest.raises(ValueError, match="nothing ever gets there"):
        parse_goal(text)
    assert str(parse_goal("success>=1")) == "success>=1"
