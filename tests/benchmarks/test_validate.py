from __future__ import annotations

import pytest

from benchmarks.validate import figures_within
from harness.commands.predict.command import plan_predictions, predict_cell
from harness.commands.predict.options import PredictOptions

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
