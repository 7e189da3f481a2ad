from __future__ import annotations

import pytest

from benchmarks.validate import figures_within
from benchmarks.validate_real import STILL, Compared
from rlbench.harness.predicting.options import PredictOptions
from rlbench.harness.predicting.planning import plan_predictions, predict_cell

SMALL = "emulated/open-fridge:num_envs=4:rollout_steps=16"


def test_iterations_can_be_held_against_those_of_a_run() -> None:
    """`figures_within` counts the iterations that it is told to, whatever the protocol would."""
    (cell,), _ = plan_predictions(PredictOptions(systems="sync", gpus="2", scenario=SMALL, iterations=8))
    prediction = predict_cell(cell)
    figures = figures_within(cell, prediction, 2, 5)
    counted = [row for row in prediction.rows if 2 <= row["iteration"] <= 5]
    seconds = max(row["end_s"] for row in counted) - min(row["begin_s"] for row in counted)
    assert figures.steps_per_s == pytest.approx(sum(row["learned"] for row in counted) / seconds)
    assert figures.window is not None
    assert (figures.window.first_iteration, figures.window.last_iteration) == (2, 5)


@pytest.mark.parametrize(
    ("system", "predicted", "holds"),
    [("nover", 104.9, True), ("nover", 94.0, False), ("ver", 114.0, True), ("ver", 84.0, False)],
)
def test_what_was_profiled_is_held_closer_than_the_others(system: str, predicted: float, holds: bool) -> None:
    """5 % for the system whose run the profile is of, 15 % for those that had no part in it."""
    compared = Compared(scenario="atari", ranks=2, system=f"{system}{STILL}", measured=100.0, predicted=predicted)
    assert compared.holds == holds
    assert f"| {predicted:,.0f} | {predicted - 100:+.1f}% |" in compared.row()
    assert ("nover, profiled" in compared.row()) == (system == "nover")
