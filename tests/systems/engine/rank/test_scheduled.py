from __future__ import annotations

import pytest

from tests.systems.engine.cells import make_cell, profile
from tests.systems.engine.ranks import Run
from tests.systems.engine.recorded import record_in_turn

NUM_ITERATIONS = 4
RATE, COEFFICIENT = 0.001, 0.02
SCHEDULED = f"learn.learning_rate={RATE}:learn.schedule=linear:learn.entropy_coef={COEFFICIENT}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Runs of two ranks whose learning rate falls; the weight of the entropy falls too, or is learned."""
    folder = tmp_path_factory.mktemp("scheduled")
    scenario = profile(folder, step_ms=0.2)
    cells = {
        schedule: make_cell(
            f"sync:{SCHEDULED}:learn.entropy_schedule={schedule}", scenario, iterations=NUM_ITERATIONS, gpus=2
        )
        for schedule in ("step", "learned")
    }
    return dict(record_in_turn(folder, cells, 2))


@pytest.mark.parametrize("rank", [0, 1])
def test_rates_fall_over_the_budget_alike_on_all_ranks(runs: dict[str, Run], rank: int) -> None:
    """Iteration i of n learns at what is left when i / n of the budget is spent."""
    rows = runs["step"].rows(rank)
    assert [row["learning_rate"] for row in rows] == pytest.approx([RATE, 0.75 * RATE, 0.5 * RATE, 0.25 * RATE])
    left = [1, 1, 0.1, 0.01]
    assert [row["entropy_coef"] for row in rows] == pytest.approx([COEFFICIENT * part for part in left])


def test_a_learned_weight_of_the_entropy_falls_above_its_target(runs: dict[str, Run]) -> None:
    """A new policy's entropy is above 0, so its weight becomes less; both ranks have learned the same."""
    found = [row["entropy_coef"] for row in runs["learned"].rows(0)]
    assert all(after < before for before, after in zip([COEFFICIENT, *found], found, strict=False))
    assert found == [row["entropy_coef"] for row in runs["learned"].rows(1)]
