"""Every environment of every scenario keeps gymnasium's rules, and its episodes follow from the seed of a reset."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlbench.scenarios import atari, emulated, pointnav, vizdoom
from rlbench.scenarios.doom_maps import MAPS
from rlbench.scenarios.habitat import Habitat
from rlbench.scenarios.pointnav.export import export_scenes
from tests.scenarios import fake_habitat_sim
from tests.scenarios.seats import seat_of

NUM_STEPS = 120
HAS_NO_BOUND = ("pointnav", "habitat")
"""Their `goal` holds a distance, and no number bounds those of all scenes: gymnasium warns of the infinity."""
Make = Callable[[int, int], Any]
"""Makes the environment of an index and a seed."""


def emulated_of(workload: str) -> Any:
    """`open-fridge`, whose steps take no time."""
    return replace(emulated.FAMILY.make("open-fridge", workload), time_scale=1e-6)


BREAKOUT = atari.FAMILY.make("breakout", "homogeneous")
SCENARIOS: dict[str, Any] = {
    "atari": BREAKOUT,
    "atari, sticky": replace(BREAKOUT, repeat_action_probability=0.25),
    "atari, lives": replace(BREAKOUT, terminal_on_life_loss=True),
    "atari, several": atari.FAMILY.make("seaquest", "heterogeneous"),
    "pointnav": pointnav.FAMILY.make("", "homogeneous"),
    "pointnav, several plans": pointnav.PointNav(episodes_per_plan=2, max_steps=20),
    "emulated": emulated_of("homogeneous"),
    "emulated, several": emulated_of("heterogeneous"),
    "vizdoom, several": vizdoom.FAMILY.make("", "heterogeneous"),
    **{f"vizdoom/{name}": vizdoom.FAMILY.make(name, "homogeneous") for name in MAPS},
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two exported floor plans."""
    folder = tmp_path_factory.mktemp("scenes")
    export_scenes(folder, 2, 0, "homogeneous")
    return folder


@pytest.fixture(params=[*SCENARIOS, "habitat"])
def name(request: pytest.FixtureRequest) -> str:
    """One of the scenarios."""
    return str(request.param)


@pytest.fixture
def scenario(name: str, scenes: Path) -> Any:
    """The scenario of that name."""
    return Habitat(scenes=str(scenes), resolution=16) if name == "habitat" else SCENARIOS[name]


@pytest.fixture
def make(scenario: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes environments of the scenario; habitat-sim's double is in its place."""
    monkeypatch.setitem(sys.modules, "habitat_sim", fake_habitat_sim.module())
    yield lambda index, seed: scenario.make_env(seat_of(index=index, seed=seed))
    fake_habitat_sim.Simulator.open.clear()


def play(env: Any, seed: int | None) -> list[Any]:
    """All that `NUM_STEPS` steps give after a reset to a seed, in several episodes if the first ends."""

    def frozen(observation: dict[str, Any]) -> dict[str, bytes]:
        return {key: value.tobytes() for key, value in observation.items()}

    observation, info = env.reset(seed=seed)
    seen: list[Any] = [frozen(observation), info]
    env.action_space.seed(0)
    for _ in range(NUM_STEPS):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        seen += [frozen(observation), reward, terminated, truncated, info]
        if terminated or truncated:
            observation, info = env.reset()
            seen += [frozen(observation), info]
    return seen


def test_gymnasium_finds_no_fault(name: str, make: Make) -> None:
    """`check_env` raises nothing and warns of nothing, but of the goal's distance that has no bound."""
    with closing(make(0, 1)) as env, warnings.catch_warnings():
        warnings.simplefilter("error")
        if name.startswith(HAS_NO_BOUND):
            warnings.filterwarnings("ignore", ".*maximum value is infinity")
        check_env(env, skip_render_check=True)


def test_a_seed_gives_its_episodes(make: Make) -> None:
    """A reset to a seed gives the same steps in an environment that has played and in one that had another seed."""
    with closing(make(0, 1)) as env, closing(make(0, 2)) as other:
        first = play(env, 5)
        assert play(env, 6) != first
        assert play(env, 5) == first
        assert play(other, 5) == first


def test_the_scenario_says_what_it_acts_in(scenario: Any, make: Make) -> None:
    """The environment's spaces are the scenario's."""
    with closing(make(0, 1)) as env:
        assert env.action_space == scenario.action_space
        assert env.observation_space == scenario.observation_space


def test_the_seat_has_a_seed_of_its_own(make: Make) -> None:
    """A first reset to the seat's seed, which every run does, changes nothing: its episodes come without it, too."""
    with closing(make(0, 7)) as env, closing(make(0, 7)) as told:
        assert play(env, None) == play(told, 7)


def test_what_was_given_stays(make: Make) -> None:
    """Later steps do not change an observation."""
    with closing(make(0, 1)) as env:
        observation, _ = env.reset(seed=1)
        kept = {key: value.copy() for key, value in observation.items()}
        for _ in range(10):
            if any(env.step(env.action_space.sample())[2:4]):
                env.reset()
        assert all(np.array_equal(observation[key], kept[key]) for key in kept)
