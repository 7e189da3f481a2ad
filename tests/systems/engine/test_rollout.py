from __future__ import annotations

import numpy as np
import pytest

from systems.engine.rollout import Fixed, FixedRollout
from systems.engine.tables import Table, rollout_columns
from tests.systems.engine.counting import SPACE

ENVS = np.arange(2)


def table_for(rollout: FixedRollout) -> Table:
    """A table with room for the rollout."""
    num_slots = Fixed().num_slots(rollout.num_envs, rollout.num_steps)
    return Table(rollout_columns(SPACE, rollout.num_envs, num_slots, state_size=1))


def test_slots_by_hand() -> None:
    """Step t of environment n is in slot t * N + n; one more row holds where the environments stand at the end."""
    rollout = Fixed().open(num_envs=2, num_steps=3)
    seen = [rollout.slots(ENVS).tolist()]
    seen += [rollout.advance(ENVS).tolist() for _ in range(3)]
    assert seen == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert rollout.is_full
    assert rollout.num_samples == 6
    assert [run.tolist() for run in rollout.runs()] == [[0, 2, 4], [1, 3, 5]]
    assert Fixed().num_slots(2, 3) == 8


def test_environments_advance_alone() -> None:
    """Environments need not be in step: each has its own count, and is full at T."""
    rollout = FixedRollout(num_envs=2, num_steps=3)
    for _ in range(3):
        rollout.advance(ENVS[1:])
    assert rollout.slots(ENVS).tolist() == [0, 7]
    assert not rollout.is_full
    assert rollout.num_samples == 3
    assert [run.tolist() for run in rollout.runs()] == [[], [1, 3, 5]]


@pytest.mark.parametrize("num_steps", [2, 3])
def test_begins_where_it_ended(num_steps: int) -> None:
    """The next rollout begins with the last observation, previous action and episode start, also after a cut one."""
    rollout = FixedRollout(num_envs=2, num_steps=3)
    table = table_for(rollout)
    for _ in range(num_steps):
        rollout.advance(ENVS)
    last = rollout.slots(ENVS)
    table["obs/where"][last] = [[1, 2, 3], [4, 5, 6]]
    table["prev_action"][last] = [7, -1]
    table["episode_start"][last] = [False, True]
    table["action"][last] = 9
    rollout.begin(table)
    assert rollout.num_samples == 0
    assert rollout.slots(ENVS).tolist() == [0, 1]
    assert table["obs/where"][:2].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert table["prev_action"][:2].tolist() == [7, -1]
    assert table["episode_start"][:2].tolist() == [False, True]
    assert table["action"][:2].tolist() == [0, 0], "what is chosen and received is not carried over"
    table.close()


def test_steps_of_the_scenario_or_its_own() -> None:
    """T is the scenario's unless it is set."""
    assert Fixed().steps(128) == 128
    assert Fixed(num_steps=32).steps(128) == 32
    with pytest.raises(ValueError, match=r"rollout\.num_steps=-1: must be at least 1, or 0 for the scenario's"):
        Fixed(num_steps=-1)
