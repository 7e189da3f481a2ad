from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import complete
from rlbench.harness.run.record import cell_record
from rlbench.results.records import labels
from tests.harness.command import launch

WAREHOUSE = "gym/my_package:Warehouse-v0:kwargs.size=20:wrappers=my_package:Norm"
TYPED = (
    "gym/CartPole-v1:num_envs=16",
    WAREHOUSE,
    "gym/my_package:Warehouse-v0:kwargs.names='a b':kwargs.shelves=True",
    "gym/./mine.py:Good",
    "mujoco/ant:action_bounds=tanh",
    "minigrid/DoorKey-8x8:learn.epochs=2",
)


def planned(scenario: str) -> Cell:
    """The only cell of a scenario."""
    (cell,) = plan(complete(RunOptions(systems="sync", device="cpu", scenario=scenario))[0])
    return cell


@pytest.mark.parametrize("text", TYPED)
@pytest.mark.usefixtures("my_package", "mine")
def test_a_record_says_what_was_typed(text: str) -> None:
    """So that it can be typed again; and a plan that was written is the same work."""
    cell = planned(text)
    assert labels.typed_scenario(cell_record(cell)) == text
    assert Cell.from_json(cell.to_json()).hash() == cell.hash()
    assert planned(labels.typed_scenario(cell_record(cell))).hash() == cell.hash()


def test_a_file_that_was_changed_is_other_work(mine: Path) -> None:
    """Finished runs of the old text are not taken for it."""
    before = planned("gym/./mine.py:Good").hash()
    mine.write_text(f"{mine.read_text(encoding='utf-8')}\n# another\n", encoding="utf-8")
    assert planned("gym/./mine.py:Good").hash() != before


@pytest.mark.parametrize("text", [WAREHOUSE, "gym/./mine.py:Good"])
@pytest.mark.usefixtures("mine")
def test_the_command_plans_it(my_package: Path, text: str) -> None:
    """As people call it, with their package on PYTHONPATH, or a file in the working folder."""
    path = os.pathsep.join(filter(None, [str(my_package), os.environ.get("PYTHONPATH")]))
    ended = launch(
        *("run", "--systems", "sync,ddppo", "--device", "cpu", "--scenario", text, "--out", "runs", "--dry-run"),
        folder=my_package,
        environment={"PYTHONPATH": path},
    )
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count(text.partition(":")[0]) == 2
