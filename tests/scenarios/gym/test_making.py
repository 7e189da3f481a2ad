from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.plan.overrides import split_scenario
from rlbench.harness.plan.registry import load_scenario
from tests.scenarios.seats import seat_of


def scenario_of(text: str, workload: str = "homogeneous") -> Any:
    """The scenario that a text names, with its settings."""
    name, settings = split_scenario(text, "--scenario")
    return load_scenario(name, workload, settings)


def played(scenario: Scenario, seed: int, index: int = 0) -> list[Any]:
    """Observations and rewards of 50 steps with sampled actions, over episodes."""
    env = scenario.make_env(seat_of(seed=seed, index=index))
    seen: list[Any] = [env.reset(seed=seed)[0]]
    for _ in range(50):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        seen += [observation, reward]
        if terminated or truncated:
            seen.append(env.reset()[0])
    env.close()
    return seen


def same(one: Any, two: Any) -> bool:
    """Whether two observations, or lists of them, are equal to the bit."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(np.array_equal(one, two))


EVERY = (
    "gym/CartPole-v1",
    "gym/Pendulum-v1",
    "gym/FrozenLake-v1",
    "mujoco/hopper",
    "minigrid",
    "minigrid/MultiRoom-N2-S4",
)


@pytest.mark.parametrize("text", EVERY)
def test_environments_are_as_gymnasium_asks(text: str) -> None:
    """Gymnasium's own checker finds nothing wrong, and spaces are those that the scenario says."""
    scenario = scenario_of(text)
    env = scenario.make_env(seat_of())
    assert (env.observation_space, env.action_space) == (scenario.observation_space, scenario.action_space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of wrappers, and of bounds of Gymnasium's own environments
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize("text", [*EVERY, "gym/my_package:Warehouse-v0:kwargs.size=20:wrappers=my_package:Norm"])
@pytest.mark.usefixtures("my_package")
def test_the_same_seed_gives_the_same_episodes(text: str) -> None:
    """Sampled actions included; another seed gives others."""
    scenario = scenario_of(text)
    first = played(scenario, 7)
    assert same(first, played(scenario, 7))
    assert not same(first, played(scenario, 8))


@pytest.mark.usefixtures("my_package")
def test_arguments_and_wrappers_arrive() -> None:
    """`kwargs` reach the constructor as numbers, the wrapper stands around it, the limit is the id's or one's own."""
    scenario = scenario_of("gym/my_package:Warehouse-v0:kwargs.size=20:kwargs.speed=0.5:wrappers=my_package:Norm")
    env = scenario.make_env(seat_of())
    assert (env.unwrapped.size, env.unwrapped.speed) == (20, 0.5)
    assert env.reset(seed=1)[0][2] == np.float32(2.0)
    assert env.get_wrapper_attr("_max_episode_steps") == 30
    limited = scenario_of("gym/my_package:Warehouse-v0:max_episode_steps=3").make_env(seat_of())
    limited.reset(seed=1)
    ended = [limited.step(1)[3] for _ in range(3)]
    assert ended == [False, False, True]


@pytest.mark.usefixtures("my_package")
def test_is_success_is_success() -> None:
    """As robotics environments call it."""
    env = scenario_of("gym/my_package:Warehouse-v0").make_env(seat_of())
    env.reset(seed=1)
    info = env.step(1)[4]
    assert info["success"] == info["is_success"]


def test_a_class_in_a_file_needs_no_package(mine: Path) -> None:
    """A path from here, or an absolute one; under a name of its own, and anew where the file was changed."""
    here = scenario_of("gym/./mine.py:Good:max_episode_steps=5")
    there = scenario_of(f"gym/{mine}:Good")
    assert here.observation_space == there.observation_space
    assert here.code == there.code
    assert "mine" not in sys.modules
    env = here.make_env(seat_of())
    assert env.unwrapped.__class__.__module__.startswith("rlbench_file_mine_")
    mine.write_text(mine.read_text(encoding="utf-8").replace("(2,)", "(3,)").replace("random(2)", "random(3)"))
    changed = scenario_of("gym/./mine.py:Good")
    assert changed.code != here.code
    assert changed.observation_space.shape == (3,)
    assert not mine.with_name("__pycache__").exists()


def test_a_file_may_import_its_neighbour(mine: Path) -> None:
    """Its folder is looked in last."""
    mine.with_name("beside_mine.py").write_text("NUM = 3\n", encoding="utf-8")
    mine.write_text(f"import beside_mine\n{mine.read_text(encoding='utf-8')}", encoding="utf-8")
    assert scenario_of("gym/./mine.py:Good").action_space == gymnasium.spaces.Discrete(2)
    sys.modules.pop("beside_mine", None)


def test_entries_are_removed(mine: Path) -> None:
    """A text beside what is seen."""
    assert mine.exists()
    scenario = scenario_of("gym/./mine.py:Text:without=told")
    assert list(scenario.observation_space.spaces) == ["seen"]
    assert scenario.make_env(seat_of()).reset(seed=1)[0].keys() == {"seen"}


@pytest.mark.usefixtures("my_package")
def test_a_range_makes_environments_differ() -> None:
    """Environment i of the run has the same value in every run, and says so."""
    scenario = scenario_of("gym/my_package:Warehouse-v0:kwargs.size=5..20:kwargs.speed=0.5..2", "heterogeneous")
    envs = [scenario.make_env(seat_of(rank=rank, index=index)).unwrapped for rank in (0, 1) for index in range(8)]
    assert {type(env.size) for env in envs} == {int}
    assert len({env.size for env in envs}) > 8
    assert len({env.speed for env in envs}) == 16
    assert envs[0].size == 5
    assert scenario.part(9, 0) == f"my_package:Warehouse-v0 size={envs[9].size} speed={envs[9].speed!r}"


def test_several_ids_take_turns() -> None:
    """Their spaces are equal."""
    scenario = scenario_of("gym:ids=CartPole-v0+CartPole-v1", "heterogeneous")
    assert [scenario.part(index, 0) for index in range(3)] == ["CartPole-v0", "CartPole-v1", "CartPole-v0"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # version 0 is an old one
        envs = [scenario.make_env(seat_of(index=index)) for index in range(2)]
    assert [env.spec.max_episode_steps for env in envs] == [200, 500]


@pytest.mark.parametrize(
    ("text", "num_envs", "batch", "minibatches", "normalizes"),
    [
        ("gym/CartPole-v1", 8, 256, 1, False),
        ("gym/Pendulum-v1", 16, 2048, 16, True),
        ("mujoco/ant", 16, 2048, 16, True),
        ("minigrid", 16, 2048, 8, False),
        ("gym/ALE/Pong-v5", 8, 1024, 4, False),
    ],
)
def test_settings_are_those_that_are_published(
    text: str, num_envs: int, batch: int, minibatches: int, normalizes: bool
) -> None:
    """By the kind of spaces; what the user sets holds."""
    scenario = scenario_of(text)
    assert (scenario.num_envs, scenario.num_envs * scenario.rollout_steps) == (num_envs, batch)
    assert (scenario.learn.num_minibatches, scenario.normalize_observations) == (minibatches, normalizes)
    own = scenario_of(f"{text}:num_envs=3:learn.epochs=2")
    assert (own.num_envs, own.learn.epochs, own.rollout_steps) == (3, 2, scenario.rollout_steps)


def test_importing_the_families_is_light() -> None:
    """Neither torch nor a simulator."""
    code = (
        "import rlbench.scenarios.gym.families, sys; sys.exit(bool({'torch', 'mujoco', 'minigrid'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[3]).returncode == 0
