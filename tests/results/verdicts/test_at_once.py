"""Runs that were measured at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlbench.results.records.parts import SERIES_FILE, Part
from rlbench.results.records.store import StoredRun
from rlbench.results.verdicts.at_once import rates_at_once
from tests.results.verdicts.test_gate import check_of, gate, runs_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(
    run: StoredRun, began_s: float, rates: Sequence[float], *, starting_s: float | None = 5.0, time_scale: float = 1.0
) -> StoredRun:
    """The run with parts of a second each, of so many steps, `starting_s` after it began."""
    begin = 3.0  # the window does not begin with the first iteration
    parts = tuple(
        Part(iteration=number, begin_s=begin + number, end_s=begin + number + 1, learned=round(rate))
        for number, rate in enumerate(rates)
    )
    record = run.record.model_copy(
        update={
            "started_at": (NOON + timedelta(seconds=began_s)).isoformat(),
            "starting_s": starting_s,
            "figures": run.record.figures.model_copy(update={"time_scale": time_scale}),
        }
    )
    return StoredRun(path=run.path, record=record, parts=parts)


def test_rates_are_of_the_time_that_both_share() -> None:
    """One began 4 s later: 36 of 40 s are both's."""
    (run,) = runs_of([100])
    one = at(run, 0, [1000.0] * 20 + [2000.0] * 20)
    rates = rates_at_once(one, at(run, 4, [500.0] * 40))
    assert rates == pytest.approx(((16 * 1000 + 20 * 2000) / 36, 500))


@pytest.mark.parametrize(("learning", "done"), [(None, 0), (0.25, 0.75), (1.0, 0)])
def test_samples_that_came_to_be_in_flight(tmp_path: Path, learning: float | None, done: float) -> None:
    """They count by the share of the time that is not learning: one run has collected 100 more than it learned."""
    (run,) = runs_of([100])
    shares = {} if learning is None else {"learn": learning}
    sides = []
    for name, more in (("one", 100), ("other", 0)):
        folder = tmp_path / name
        folder.mkdir()
        collected = np.full(14, 1000)
        collected[[0, 5]] += (500, more)  # the former are before the window
        series = {"rank": 0, "end_s": np.arange(14.0), "learned": 1000, "env_steps": collected, "discarded": 0}
        pd.DataFrame(series).to_parquet(folder / SERIES_FILE)
        at_noon = at(run, 0, [1000.0] * 10)
        figures = at_noon.record.figures.model_copy(update={"time_shares": shares})
        record = at_noon.record.model_copy(update={"figures": figures})
        sides.append(StoredRun(path=folder, record=record, parts=at_noon.parts))
    assert rates_at_once(*sides) == pytest.approx((1000 + done * 10, 1000))


def test_the_clock_of_an_emulated_run() -> None:
    """A second of a run at a time scale of 2 takes two on the wall; its rates are those of its own clock."""
    (run,) = runs_of([100])
    one, other = at(run, 0, [1000.0] * 10, time_scale=2.0), at(run, 0, [900.0] * 10, time_scale=2.0)
    assert rates_at_once(one, other) == pytest.approx((1000, 900))


def test_runs_one_after_the_other_are_not_at_once() -> None:
    """Neither are those that share less than half of their time, nor those whose start nobody knows."""
    (run,) = runs_of([100])
    one = at(run, 0, [1000.0] * 40)
    assert rates_at_once(one, at(run, 45, [1000.0] * 40)) is None
    assert rates_at_once(one, at(run, 21, [1000.0] * 40)) is None
    assert rates_at_once(one, at(run, 19, [1000.0] * 40)) is not None
    assert rates_at_once(one, at(run, 0, [1000.0] * 40, starting_s=None)) is None
    assert rates_at_once(one, at(run, 0, [])) is None


def test_what_slows_both_at_once_is_no_noise() -> None:
    """Each second both are slowed by up to a half: the loss of 3 % is seen; of the same runs in turn it is not."""
    generator = np.random.default_rng(0)
    sides: dict[str, list[StoredRun]] = {"baseline": [], "candidate": []}
    for number, run in enumerate(runs_of([100, 80, 120, 90])):
        slowed = 1000 * generator.uniform(0.5, 1.0, 60)
        for side, factor in (("baseline", 1.0), ("candidate", 0.97)):
            noise = 1 + 0.01 * generator.standard_normal(60)
            sides[side].append(at(run, 100 * number, (slowed * factor * noise).tolist()))
    check = check_of(gate(sides["baseline"], sides["candidate"], tolerance=0.01), "steps_per_s")
    assert check.ratio is not None
    assert check.outcome == "regression"
    assert check.ratio.value == pytest.approx(0.97, abs=0.01)
    assert (check.at_once, check.ratio.units, check.ratio.num_units, check.num_runs) == (True, "seeds", 4, (4, 4))
    later = [at(run, 1000 + 100 * number, [970.0] * 60) for number, run in enumerate(sides["candidate"])]
    in_turn = check_of(gate(sides["baseline"], later, tolerance=0.01), "steps_per_s")
    assert (in_turn.at_once, in_turn.paired) == (False, True)


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_processes_that_differ_are_no_change(spread: float) -> None:
    """However alike the seconds of a run are: of 400 gates of the same code, one in 40 finds a loss of nothing."""
    generator, wrong = np.random.default_rng(0), 0
    runs = runs_of([100, 100, 100, 100])
    for _ in range(400):
        sides = [
            [
                at(run, 100 * number, 1000 * np.exp(spread * generator.standard_normal()) * (1 + noise))
                for number, (run, noise) in enumerate(zip(runs, 0.01 * generator.standard_normal((4, 10)), strict=True))
            ]
            for _ in range(2)
        ]
        check = check_of(gate(*sides, tolerance=1e-9), "steps_per_s")
        wrong += check.outcome == "regression"
    assert 1 <= wrong <= 20
