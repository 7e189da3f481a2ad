"""What a gate says of made-up runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlbench.results.records.schema import Lag, Reading
from rlbench.results.records.store import StoredRun
from rlbench.results.records.work import WORK_FILE
from rlbench.results.summary.document import Estimate
from rlbench.results.verdicts.compare import Runs
from rlbench.results.verdicts.gate import Check, Gate, judge, pooled, repetitions
from tests.lanes import deep
from tests.results.summaries import make_run, stored

ITERATIONS = [98.0, 100.0, 102.0, 99.0, 101.0, 100.0]


def runs_of(
    rates: Sequence[float],
    system: str = "ddppo",
    *,
    lag: float | None = None,
    memory: float | None = None,
    **fields: Any,
) -> list[StoredRun]:
    """A run for each rate, with seeds 0, 1, ...; `fields` are of the record."""
    made = []
    for seed, rate in enumerate(rates):
        record = make_run(system, seed=seed, **fields)
        figures: dict[str, Any] = {"steps_per_s": rate, "memory_bytes": Reading(value=memory)}
        figures["lag"] = None if lag is None else Lag(mean=lag, max=lag)
        record = record.model_copy(update={"figures": record.figures.model_copy(update=figures)})
        made.append(stored(record, [rate / 100 * each for each in ITERATIONS]))
    return made


def gate(before: Sequence[StoredRun], after: Sequence[StoredRun], **options: Any) -> Gate:
    """Some runs held against others."""
    return judge(Runs(name="main", runs=before), Runs(name="HEAD", runs=after), **options)


def check_of(judged: Gate, metric: str) -> Check:
    """The one check of a metric."""
    (found,) = [check for check in judged.checks if check.metric == metric]
    return found


def test_other_work_is_not_comparable(tmp_path: Path) -> None:
    """Where environments of still work got other actions, rewards or ends with one seed, steps/s are not judged."""
    sides = []
    for name, last in (("main", 30), ("HEAD", 31)):
        side = [replace(run, path=tmp_path / f"{name}{number}") for number, run in enumerate(runs_of([100, 101, 99]))]
        for number, run in enumerate(side):
            run.path.mkdir()
            rows = {"environment": [0, 0, 1], "env_steps": [1, 2, 1], "hash": [10, last if number == 1 else 20, 7]}
            pd.DataFrame(rows).to_parquet(run.path / WORK_FILE)
        sides.append(side)
    assert gate(sides[0], sides[0]).outcome == "passed"
    (check,) = gate(*sides).checks
    assert check.outcome == "not comparable"
    assert "did not do the same work: with seed 1, 1 of 2 got other" in check.reason


def test_a_warm_up_is_not_held_against_later_iterations() -> None:
    """A run of one iteration counts it; where all do, the comparison is fair, where some do, it is none."""

    def short(run: StoredRun) -> StoredRun:
        window = run.record.figures.window
        assert window is not None
        first = window.model_copy(update={"first_iteration": 0, "last_iteration": 0})
        figures = run.record.figures.model_copy(update={"window": first})
        return replace(run, record=run.record.model_copy(update={"figures": figures}))

    one, other = runs_of([100, 101, 99]), runs_of([50, 101, 99])
    other[0] = short(other[0])
    judged = gate(one, other)
    assert (judged.outcome, judged.exit_code) == ("not comparable", 4)
    assert "1 of 6 runs have one iteration, the warm-up" in judged.checks[0].reason
    assert gate([short(run) for run in one], [short(run) for run in one]).outcome == "passed"


def test_a_clear_loss_is_a_regression() -> None:
    """10 % fewer steps/s in three runs that hardly differ; what it lost is in the ratio."""
    judged = gate(runs_of([100, 101, 99]), runs_of([90, 91, 89]))
    assert (judged.outcome, judged.exit_code) == ("regression", 1)
    check = check_of(judged, "steps_per_s")
    assert check.ratio is not None
    assert check.ratio.value == pytest.approx(0.9)
    assert (check.ratio.units, check.num_runs, check.limit) == ("seeds", (3, 3), 0.95)
    assert judged.sentence.startswith("regression: 1 regression, ")


def test_the_same_passes_and_so_does_more() -> None:
    """Equal runs, a gain, and a loss within the tolerance pass."""
    for rates in ([100, 101, 99], [150, 151, 149], [98, 99, 97]):
        assert check_of(gate(runs_of([100, 101, 99]), runs_of(rates)), "steps_per_s").outcome == "passed"
    judged = gate(runs_of([100, 101, 99]), runs_of([98, 99, 97]))
    assert (judged.outcome, judged.exit_code) == ("passed", 0)


def test_noise_is_inconclusive_and_says_what_would_settle_it() -> None:
    """Where the limit is within the interval nothing was shown; as many runs as it says do settle it."""
    generator = np.random.default_rng(0)

    def noisy(num: int) -> list[StoredRun]:
        rates = 100 * np.exp(0.08 * (each := generator.standard_normal(num) - 0) - 0.08 * each.mean())
        return runs_of(rates.tolist())

    judged = gate(noisy(4), noisy(4))
    check = check_of(judged, "steps_per_s")
    assert (check.outcome, judged.exit_code) == ("inconclusive", 3)
    assert check.repetitions is not None
    assert 4 < check.repetitions < 100
    assert f"{check.repetitions} repetitions of each side would settle it" in check.reason
    settled = gate(noisy(2 * check.repetitions), noisy(2 * check.repetitions))
    assert check_of(settled, "steps_per_s").outcome == "passed"


def test_the_tolerance_is_the_users() -> None:
    """The same loss of 8 % passes at 15 % and is a regression at 5 %."""
    before, after = runs_of([100, 100.5, 99.5]), runs_of([92, 92.5, 91.5])
    assert gate(before, after).outcome == "regression"
    assert gate(before, after, tolerance=0.15).outcome == "passed"
    for none in (0, 1, -0.1, math.nan):
        with pytest.raises(ValueError, match="--tolerance"):
            gate(before, after, tolerance=none)


def test_down_is_better_for_time_lag_and_memory() -> None:
    """More lag, memory or time is worse, less is not."""
    steady = [100.0, 101.0, 99.0]
    before = runs_of(steady, lag=2.0, memory=1e9, duration_s=30.0)
    worse = runs_of(steady, lag=2.5, memory=1.2e9, duration_s=40.0)
    for metric in ("lag_mean", "memory_bytes", "duration_s"):
        assert check_of(gate(before, worse), metric).outcome == "regression"
        assert check_of(gate(worse, before), metric).outcome == "passed"
        assert check_of(gate(before, before), metric).outcome == "passed"
    assert check_of(gate(before, worse), "steps_per_s").outcome == "passed"
    assert gate(before, worse).exit_code == 1


def test_lag_of_zero_has_no_ratio() -> None:
    """Both without lag pass; lag in every run where there was none is a regression."""
    none, some = (runs_of([100, 101, 99], lag=lag) for lag in (0.0, 0.5))
    assert check_of(gate(none, none), "lag_mean").outcome == "passed"
    assert check_of(gate(none, some), "lag_mean").outcome == "regression"
    assert check_of(gate(some, none), "lag_mean").outcome == "passed"
    mixed = [*runs_of([100], lag=0.0), *runs_of([100, 101], lag=0.5)[1:]]
    assert check_of(gate(none, mixed), "lag_mean").outcome == "not judged"


def test_single_runs_say_nothing_of_others() -> None:
    """However much slower a single run is: it takes repetitions; metrics beside steps/s are not judged."""
    for after in (runs_of([80], lag=0.0, memory=2e9), runs_of([100], lag=0.5, memory=1e9)):
        judged = gate(runs_of([100], lag=0.0, memory=1e9), after)
        assert (judged.outcome, judged.exit_code, judged.repetitions) == ("inconclusive", 3, 3)
        assert {check.outcome for check in judged.checks[1:]} == {"not judged"}
    assert gate(runs_of([100, 101, 99]), runs_of([80])).exit_code == 3


def test_a_metric_that_is_0_in_some_runs() -> None:
    """No draw may divide by nothing."""
    steady = [100.0, 101.0, 99.0]
    before = [runs_of(steady, lag=lag)[at] for at, lag in enumerate((0.0, 0.1, 0.2))]
    judged = gate(before, runs_of(steady, lag=0.1))
    assert (check_of(judged, "lag_mean").outcome, judged.outcome) == ("not judged", "passed")


def test_runs_of_the_candidate_that_fail_are_not_forgotten() -> None:
    """Two of five failed: not comparable, though three are fine; as many failures on both sides are no difference."""
    dead = [
        stored(make_run(seed=seed, id=f"dead-{seed}", status="failed", reason="died", steps_per_s=None))
        for seed in (3, 4)
    ]
    judged = gate(runs_of([100, 101, 99]), [*runs_of([100, 101, 99]), *dead])
    assert judged.exit_code == 4
    assert "2 of the candidate's 5 runs did not finish" in judged.checks[0].reason
    assert gate([*runs_of([100, 101, 99]), *dead], [*runs_of([100, 101, 99]), *dead]).exit_code == 0


def test_what_the_candidate_has_not_finished_never_passes() -> None:
    """A cell that is missing, or failed, is not comparable, though all others pass; a new cell does not matter."""
    ddppo, ver = runs_of([100, 101, 99]), runs_of([200, 201, 199], "ver")
    missing = gate([*ddppo, *ver], ddppo)
    assert (missing.outcome, missing.exit_code) == ("not comparable", 4)
    assert [check.outcome for check in missing.checks if check.system == "ver"] == ["not comparable"]
    dead = stored(make_run("ver", status="failed", reason="died", steps_per_s=None))
    failed = gate([*ddppo, *ver], [*ddppo, dead])
    assert failed.exit_code == 4
    assert "no run of the candidate finished (failed)" in [check.reason for check in failed.checks]
    assert gate(ddppo, [*ddppo, *ver]).outcome == "passed"


def test_a_regression_outranks_what_is_missing() -> None:
    """What was seen to be worse is said first."""
    ddppo, ver = runs_of([100, 101, 99]), runs_of([200, 201, 199], "ver")
    assert gate([*ddppo, *ver], runs_of([50, 51, 49])).exit_code == 1


def test_nothing_measured_never_passes() -> None:
    """No runs, no finished run of the baseline, and cells that do not match are not comparable."""
    dead = stored(make_run(status="failed", reason="died", steps_per_s=None))
    for before, after in (
        ([], []),
        ([dead], runs_of([100])),
        (runs_of([100]), runs_of([100], "sync")),
        ([], runs_of([1])),
    ):
        judged = gate(before, after)
        assert (judged.outcome, judged.exit_code) == ("not comparable", 4)
    assert gate([], []).sentence == "not comparable: nothing was measured"


def test_other_work_is_not_comparable_but_another_commit_is() -> None:
    """Runs that differ in more than the commit are named with what they differ in."""
    before = runs_of([100, 101, 99])
    assert gate(before, runs_of([100, 101, 99], commit="0123456789abcdef")).outcome == "passed"
    judged = gate(before, runs_of([100, 101, 99], learn={"epochs": 7}))
    assert judged.exit_code == 4
    assert [check.metric for check in judged.checks] == ["steps_per_s"]
    assert "epochs" in judged.checks[0].reason


def test_pooled_runs_of_several_sweeps_are_repetitions() -> None:
    """A side that was measured in three sweeps of one seed has three runs of the cell."""
    sweeps = [
        run
        for number, rate in enumerate((100.0, 101.0, 99.0))
        for run in runs_of([rate], sweep=f"sweep-{number}", id=f"run-{number}")
    ]
    assert check_of(gate(sweeps, sweeps), "steps_per_s").num_runs == (1, 1)
    assert gate(sweeps, sweeps).outcome == "inconclusive"
    both = pooled(sweeps, "main"), pooled(sweeps, "HEAD")
    assert check_of(gate(*both), "steps_per_s").num_runs == (3, 3)


def test_runs_with_the_same_seeds_are_pairs() -> None:
    """Seeds that differ by half of their rate are no noise where both sides ran them; without, or twice, they are."""
    before, after = [100.0, 150.0, 120.0], [99.0, 149.0, 119.5]
    paired = check_of(gate(runs_of(before), runs_of(after)), "steps_per_s")
    assert (paired.outcome, paired.paired) == ("passed", True)
    slow = check_of(gate(runs_of(before), runs_of([0.9 * rate for rate in after])), "steps_per_s")
    assert (slow.outcome, slow.paired) == ("regression", True)
    turned = check_of(gate(runs_of(before)[::-1], runs_of(after)), "steps_per_s")
    assert turned.ratio == paired.ratio, "whichever came first"
    others = [stored(make_run("ddppo", seed=seed, steps_per_s=rate)) for seed, rate in enumerate(after, start=5)]
    alone = check_of(gate(runs_of(before), others), "steps_per_s")
    assert (alone.outcome, alone.paired) == ("inconclusive", False)


def test_only_steps_per_s_hold_a_gate_up() -> None:
    """Memory that is too noisy to say anything of is not judged, and the gate passes; if it shows a loss, it fails."""

    def with_memory(*values: float) -> list[StoredRun]:
        return [runs_of([100, 101, 99], memory=value)[seed] for seed, value in enumerate(values)]

    noisy = gate(with_memory(1e9, 1e9, 1e9), with_memory(1e9, 2e9, 0.5e9))
    assert (check_of(noisy, "memory_bytes").outcome, noisy.exit_code) == ("not judged", 0)
    assert "repetitions of each side would settle it" in check_of(noisy, "memory_bytes").reason
    assert gate(with_memory(1e9, 1e9, 1e9), with_memory(2e9, 2.1e9, 1.9e9)).exit_code == 1


def test_repetitions_by_hand() -> None:
    """The half width falls below the distance to the limit at n; at the limit itself no number does."""
    spread = 0.05
    half = 2.7764451051977987 * spread / math.sqrt(3)  # t of 4 degrees of freedom, 97.5 %
    ratio = Estimate(value=1.0, low=math.exp(-half), high=math.exp(half), units="seeds", num_units=3)
    needed = repetitions(ratio, 0.95, 3, 0.95, paired=False)
    assert needed == 6  # t(10) = 2.2281: 0.0455 <= 0.0513 = -log 0.95; of 5 t(8) = 2.3060: 0.0516
    assert repetitions(ratio.model_copy(update={"value": 0.95}), 0.95, 3, 0.95, paired=False) is None
    half = 4.302652729911275 * spread / math.sqrt(3)  # t of 2 degrees of freedom
    ratio = Estimate(value=1.0, low=math.exp(-half), high=math.exp(half), units="seeds", num_units=3)
    needed = repetitions(ratio, 0.95, 3, 0.95, paired=True)
    assert needed == 7  # t(6) = 2.4469: 0.0462 <= 0.0513; of 6 t(5) = 2.5706: 0.0525


@pytest.mark.parametrize("num_gates", [100, pytest.param(400, marks=deep)])
def test_error_rates(num_gates: int) -> None:
    """Of gates of equal sides hardly any is a regression; of those at the limit 2.5 % pass, or are one: 5 % at most."""
    generator = np.random.default_rng(4)

    def share(ratio: float, outcome: str) -> float:
        count = 0
        for _ in range(num_gates):
            before, after = (100 * np.exp(0.03 * generator.standard_normal(4)) for _ in range(2))
            judged = gate(runs_of(before.tolist()), runs_of((ratio * after).tolist()))
            count += check_of(judged, "steps_per_s").outcome == outcome
        return count / num_gates

    assert share(1.0, "regression") <= 0.01
    assert share(0.95, "regression") <= 0.05
    assert share(0.95, "passed") <= 0.05
    assert share(0.8, "regression") >= 0.95


def test_the_document_reads_as_json() -> None:
    """Outcome and exit code stand in it."""
    import json

    document = json.loads(gate(runs_of([100, 101, 99]), runs_of([90, 91, 89])).to_json())
    assert (document["outcome"], document["exit_code"], document["tolerance"]) == ("regression", 1, 0.05)
    assert document["checks"][0]["ratio"]["value"] == pytest.approx(0.9)
