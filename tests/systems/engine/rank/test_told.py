"""What a rank tells its learner and its monitor of its rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.systems.engine.cells import make_cell, profile, run_here, run_in_turn

TOLD_FILE = "told.json"
CELLS = {
    "sync": (16.0, False),
    "ver": (16.0, False),
    "ver:overlap=oneahead": (16.0, True),
    "ver:rollout.num_steps=8": (8.0, False),
    "appo:rollout.num_steps=8:rollout.batch=24": (6.0, True),
}
"""For each system, with 4 environments: T, and whether it learns while it collects."""


def note(folder: Path) -> None:
    """Runs this rank of the cell in `folder`, and writes down what it told."""
    from rlbench.systems.engine.rank import rank_loop
    from rlbench.systems.engine.rank.learner import Learner
    from rlbench.systems.engine.rank.means import Means
    from rlbench.systems.engine.rollouts.monitors import open_monitor

    told: dict[str, Any] = {}

    class Noting(Learner):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            told["steps_per_env"] = named["steps_per_env"]

    def opened(*arguments: Any, **named: Any) -> Any:
        told.update(named)
        return open_monitor(*arguments, **named)

    with patch.object(rank_loop, "open_monitor", opened):
        run_here(folder, Means(learner=Noting))
    (folder / TOLD_FILE).write_text(json.dumps(told))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a rank of each system told."""
    folder = tmp_path_factory.mktemp("told")
    scenario = profile(folder, step_ms=0.2)
    cells = {system: make_cell(system, scenario, iterations=1) for system in CELLS}
    runs = run_in_turn(folder, cells, 1, note)
    return {name: json.loads((run.folder / TOLD_FILE).read_text()) for name, run in runs.items()}


@pytest.mark.parametrize("system", CELLS)
def test_learners_and_monitors_are_told_what_holds(told: dict[str, dict[str, Any]], system: str) -> None:
    """Importance weights are against a rollout's steps of each environment; plans know whether learning hides."""
    steps_per_env, hides_learning = CELLS[system]
    assert told[system] == {"steps_per_env": steps_per_env, "hides_learning": hides_learning}
