"""Mean policy lags that are known in closed form, against the model; `test_engine_agrees.py` holds it to the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.harness.predicting.options import PredictOptions
from rlbench.harness.predicting.planning import plan_predictions, predict_cell
from rlbench.scenarios.emulated.profile import PROFILES_FOLDER

SETTLED = 6
"""Waves of trajectories after which the lag no longer depends on how the run began."""
BATCH, NUM_STEPS = 2048, 32


def mean_lag(systems: str, scenario: str, num_ranks: int, iterations: int, first: int) -> float:
    """The mean lag of the samples that are learned from iteration `first` on."""
    options = PredictOptions(systems=systems, scenario=scenario, gpus=str(num_ranks), iterations=iterations)
    ((cell,), _) = plan_predictions(options)
    rows = [row for row in predict_cell(cell).rows if row["iteration"] >= first and row["learned"]]
    return float(sum(row["lag_sum"] for row in rows) / sum(row["learned"] for row in rows))


def slow_learner(folder: Path) -> Path:
    """`vizdoom-battle` with a learner that always has experience."""
    shipped, learning = (PROFILES_FOLDER / "vizdoom-battle.toml").read_text(encoding="utf-8"), "learn_item_ms = 0.0219 "
    assert learning in shipped
    path = folder / "slow-learner.toml"
    path.write_text(shipped.replace(learning, "learn_item_ms = 0.0262 "), encoding="utf-8")
    return path


@pytest.mark.parametrize(("num_envs", "num_ranks"), [(1024, 1), (512, 2), (256, 4), (256, 8)])
def test_lag_of_a_learner_that_never_waits(num_envs: int, num_ranks: int, tmp_path: Path) -> None:
    """N_iter / N_batch - 1 updates (Sample Factory section 3.4), within 5 %.

    N_iter are all samples under way. Where the learner waits for experience, fewer wait for it, and the lag is less.
    """
    waves = num_envs * num_ranks * NUM_STEPS / BATCH
    settled = round(SETTLED * waves)
    scenario = f"emulated/{slow_learner(tmp_path)}:num_envs={num_envs}"
    found = mean_lag("appo:overlap.max_lag=1000", scenario, num_ranks, 2 * settled, settled)
    assert found == pytest.approx(waves - 1, rel=0.05)


@pytest.mark.parametrize("num_ranks", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("system", "lag"),
    [
        ("sync", 0),
        ("htsrl", 2 * 2),
        ("htsrl:learn.epochs=3", 3 * 2),
        ("htsrl:learn.num_minibatches=4", 2 * 4),
    ],
)
def test_lag_of_rollouts(system: str, lag: int, num_ranks: int) -> None:
    """None where ranks collect and learn in turn; the updates of one rollout where they learn one behind (HTS-RL)."""
    assert mean_lag(system, "emulated/open-fridge", num_ranks, 4, 1) == lag
