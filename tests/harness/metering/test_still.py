"""Still work: what environments do does not depend on the actions that they get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text, Tuple
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array

from rlbench.harness.contract.envs import (
    make_counted_agents,
    make_counted_batch,
    make_counted_env,
    make_counted_pool,
)
from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.harness.metering.still import MARKS, NUM_ACTIONS, ActionList, marks_path, read_marks
from rlbench.results.reading.tables import LARGEST
from tests.harness.metering.batches.parallel_scenarios import ParallelScenario
from tests.harness.metering.batches.pool_double import DoublePool, PoolScenario
from tests.harness.metering.batches.vector_scenarios import RandomScenario, seats_of

NUM, NUM_STEPS = 4, 40
MODES = list(AutoresetMode)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    for pool in list(DoublePool.opened):
        pool.close()


def marks_of(folder: Path, num: int = NUM, first: int = 1) -> list[list[int]]:
    """The hashes at the marks of the environments of `seats_of`, by environment."""
    found = read_marks(marks_path(folder, 1))
    assert {env for env, _, _ in found} == set(range(first, first + num))
    marks = {env: [word for of, _, word in found if of == env] for env in range(first, first + num)}
    assert all([steps for of, steps, _ in found if of == env] == list(MARKS[: len(marks[env])]) for env in marks)
    return list(marks.values())


def still_meter(folder: Path, num_envs: int) -> Path:
    """The meter of a rank whose work is still."""
    folder.mkdir()
    path = meter_path(folder, 1)
    MeterFile.create(path, num_envs, still=True).close()
    return path


def alone(folder: Path, action: int, most_steps: int = 5, seed: int = 7) -> tuple[list[Any], list[int]]:
    """What one environment gave, and its marks, where it gets the same action again and again."""
    path = still_meter(folder, 3)
    scenario = RandomScenario(most_steps, AutoresetMode.NEXT_STEP)
    (seat,) = seats_of(1)
    env = make_counted_env(cast("Scenario", scenario), replace(seat, seed=seed), folder, path)
    told = [env.reset()]
    for _ in range(NUM_STEPS):
        told.append(env.step(action)[:4])
        if told[-1][2] or told[-1][3]:
            told.append(env.reset())
    (marks,) = marks_of(folder, 1)
    return told, marks


def test_the_actions_that_come_do_not_matter(tmp_path: Path) -> None:
    """An environment applies those of its list; other seeds give another list."""
    first, marks = alone(tmp_path / "a", action=0)
    second, same = alone(tmp_path / "b", action=4)
    assert repr(first) == repr(second)
    assert marks == same
    _, other = alone(tmp_path / "c", action=0, seed=8)
    assert len(marks) == sum(steps <= NUM_STEPS for steps in MARKS)
    assert all(one != two for one, two in zip(marks, other, strict=True))


def test_marks_do_not_run_out() -> None:
    """A million steps a second take ten years and more to the last, which tables can still hold."""
    assert list(MARKS) == sorted(set(MARKS))
    assert 10 * 365 * 86_400 * 10**6 < MARKS[-1] <= LARGEST


def test_the_hash_is_of_rewards_and_ends(tmp_path: Path) -> None:
    """Episodes that end elsewhere give other hashes from there on."""
    _, marks = alone(tmp_path / "a", action=0, most_steps=5)
    _, other = alone(tmp_path / "b", action=0, most_steps=50)
    assert marks[8] != other[8]


def in_batch(folder: Path, mode: AutoresetMode, action: int) -> list[list[int]]:
    """The marks of environments that one call steps."""
    path = still_meter(folder, NUM + 2)
    batch = make_counted_batch(RandomScenario(5, mode), seats_of(NUM), folder, path)
    batch.reset()
    for _ in range(2 * NUM_STEPS):  # some may only reset
        batch.step(np.full(NUM, action))
    return marks_of(folder)


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_does_the_same_whatever_comes(tmp_path: Path, mode: AutoresetMode) -> None:
    """Its environments differ from one another, and what only resets one is no step of it."""
    marks = in_batch(tmp_path / "a", mode, 0)
    assert in_batch(tmp_path / "b", mode, 3) == marks
    assert len({tuple(of_env) for of_env in marks}) == NUM


def test_a_pool_does_what_a_batch_does(tmp_path: Path) -> None:
    """In whatever order its environments answer; each at its own number of steps."""
    of_batch = in_batch(tmp_path / "batch", AutoresetMode.NEXT_STEP, 1)
    path = still_meter(tmp_path / "pool", NUM + 2)
    pool = make_counted_pool(PoolScenario(5, 2), seats_of(NUM), tmp_path / "pool", path, 2)
    pool.reset()
    for _ in range(2 * NUM_STEPS):
        ids, _ = pool.recv()
        pool.send(np.zeros(len(ids), int), ids)
    for mine, theirs in zip(marks_of(tmp_path / "pool"), of_batch, strict=True):
        common = min(len(mine), len(theirs))
        assert common > 4
        assert mine[:common] == theirs[:common]


def of_agents(folder: Path, action: int) -> list[list[int]]:
    """The marks of the agents of one environment."""
    scenario = ParallelScenario(num_agents=3)
    path = still_meter(folder, 9)
    seats = [seat for seat in seats_of(7, before=0) if 3 <= seat.index < 6]
    agents = make_counted_agents(scenario, seats, folder, path)
    agents.reset()
    for _ in range(NUM_STEPS):
        agents.step(np.full(3, action))
    return marks_of(folder, 3, first=3)


def test_agents_do_the_same_whatever_comes(tmp_path: Path) -> None:
    """Each has its own actions and its own hash."""
    marks = of_agents(tmp_path / "a", 0)
    assert of_agents(tmp_path / "b", 2) == marks
    assert len({tuple(of_agent) for of_agent in marks}) == 3


SPACES = [
    Discrete(5, start=-2),
    Box(-1.0, 1.0, (3,), np.float32),
    MultiDiscrete([3, 4]),
    Dict({"a": Discrete(3), "b": Tuple((Box(0, 9, (1,), np.int32), Discrete(2)))}),
    Text(4),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_any_space_has_a_list(space: gymnasium.Space[Any]) -> None:
    """Its actions are of the space, one by one and in rows, and differ with the seed."""
    drawn, again, other = ActionList(space, 1), ActionList(space, 1), ActionList(space, 2)
    assert len(drawn.actions) == NUM_ACTIONS
    assert all(action in space for action in drawn.actions)
    assert drawn.hash == again.hash != other.hash
    places = [3, 0, 3]
    rows = drawn.rows(np.array(places))
    empty: Any = create_empty_array(space, len(places))
    assert repr(rows) == repr(concatenate(space, [drawn.actions[place] for place in places], empty))
