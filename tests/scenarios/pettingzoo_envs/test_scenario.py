from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
import pytest

from rlbench.harness.contract.agents import agents_per_env, num_rows
from rlbench.harness.contract.device import Place, Seat
from rlbench.harness.devices.kinds import make_device
from rlbench.harness.plan.overrides import split_scenario
from rlbench.harness.plan.registry import load_scenario
from rlbench.scenarios.gym.published import CONTROL
from rlbench.scenarios.pettingzoo_envs.alone import Alone
from rlbench.scenarios.pettingzoo_envs.published import PARTICLES
from rlbench.scenarios.pettingzoo_envs.scenario import PettingZooScenario

HETEROGENEOUS = "pettingzoo/./game.py:Tag:kwargs.reach=0.1..0.9"


class Keywords:
    """Of one agent, which takes its seed by keyword."""

    possible_agents = ("solo",)

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:  # noqa: ARG002
        return gymnasium.spaces.Discrete(9)

    action_space = observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        return {"solo": seed}, {}


def scenario_of(text: str, workload: str = "homogeneous") -> PettingZooScenario:
    """The scenario as the command line has it."""
    scenario = load_scenario(*(split := split_scenario(text, "--scenario"))[:1], workload, split[1])
    assert isinstance(scenario, PettingZooScenario)
    return scenario


def seats(scenario: PettingZooScenario, environment: int, folder: Path, seed: int = 7) -> list[Seat]:
    """The seats of the agents of an environment of rank 0."""
    place = Place(rank=0, num_ranks=1, local_rank=0)
    device = make_device("cpu", place, scenario, folder)
    num = agents_per_env(scenario)
    return [
        Seat(place=place, index=index, num_envs=num_rows(scenario), seed=seed + index, device=device)
        for index in range(environment * num, environment * num + num)
    ]


@pytest.mark.usefixtures("game")
def test_a_class_in_a_file_is_a_scenario() -> None:
    """Its agents are found by trying it; a step of a rollout has a row for each."""
    scenario = scenario_of("pettingzoo/./game.py:Tag:kwargs.runners=1:num_envs=3")
    assert (scenario.agents_per_env, scenario.envs_per_batch, num_rows(scenario)) == (3, 3, 9)
    assert (scenario.rollout_steps, scenario.learn) == (PARTICLES.rollout_steps, PARTICLES.learn)
    assert isinstance(scenario.observation_space, gymnasium.spaces.Box)
    assert scenario.code


def test_short_names_are_of_what_is_installed() -> None:
    """MPE is in a package of its own; what acts by numbers has the settings of continuous control."""
    assert scenario_of("pettingzoo/mpe/simple_spread_v3").modules() == ["mpe2.simple_spread_v3"]
    by_module = scenario_of("pettingzoo/mpe2.simple_spread_v3:kwargs.continuous_actions=true")
    assert (by_module.agents_per_env, by_module.learn) == (3, CONTROL.learn)


@pytest.mark.usefixtures("game")
def test_the_part_of_an_agent_is_its_kind() -> None:
    """The number at the end of its name tells it from others of the kind; ranges are its environment's."""
    scenario = scenario_of("pettingzoo/./game.py:Tag")
    assert [scenario.part(row, 0) for row in range(6)] == ["tagger"] * 2 + ["runner"] * 2 + ["tagger"] * 2
    apart = scenario_of(HETEROGENEOUS, "heterogeneous")
    assert [apart.part(row, 0) for row in (0, 3)] == ["tagger reach=0.1", "runner reach=0.1"]
    assert apart.part(4, 0) != apart.part(0, 0)


@pytest.mark.usefixtures("game")
def test_each_environment_has_its_own_argument(tmp_path: Path) -> None:
    """All agents of an environment are of one environment, whose value of a range is that of its place in the run."""
    scenario = scenario_of(HETEROGENEOUS, "heterogeneous")
    envs: list[Any] = [scenario.make_envs(seats(scenario, number, tmp_path)) for number in range(3)]
    assert [str(env.reach) for env in envs] == [scenario.chosen(number)["reach"] for number in range(3)]
    assert len({env.reach for env in envs}) == 3


@pytest.mark.usefixtures("game")
def test_wrappers_are_put_around(tmp_path: Path) -> None:
    """The innermost first: here twice, so that a reward is four times as much."""
    scenario = scenario_of("pettingzoo/./game.py:Tag:kwargs.reach=9:wrappers=./game.py:Louder+./game.py:Louder")
    env = scenario.make_envs(seats(scenario, 0, tmp_path))
    env.reset(seed=1)
    assert env.step(dict.fromkeys(env.agents, 1))[1] == {"tagger_0": 8, "tagger_1": 8, "runner_0": -4, "runner_1": -4}


@pytest.mark.usefixtures("game")
def test_an_environment_of_one_agent_is_like_any_other(tmp_path: Path) -> None:
    """It is Gymnasium's, and no batch; one of several agents is none."""
    scenario = scenario_of("pettingzoo/./game.py:Solo")
    assert (scenario.agents_per_env, scenario.envs_per_batch) == (1, 1)
    env = scenario.make_env(seats(scenario, 0, tmp_path)[0])
    first, _ = env.reset(seed=3)
    assert np.array_equal(first, env.reset(seed=3)[0])
    steps = [env.step(1) for _ in range(20)]
    assert [truncated for _, _, _, truncated, _ in steps] == [False] * 19 + [True]
    env.close()
    several = scenario_of("pettingzoo/./game.py:Tag")
    with pytest.raises(ValueError, match="has 4 agents"):
        several.make_env(seats(several, 0, tmp_path)[0])


@pytest.mark.parametrize(
    ("scenario", "settings", "expected"),
    [
        ("pettingzoo/mpe/simple_spread_v3", {}, False),
        ("pettingzoo/butterfly/pistonball_v6", {"kwargs.n_pistons": "5"}, False),
        ("pettingzoo/butterfly/pistonball_v6", {"kwargs.mode": "./a.py"}, True),
        ("pettingzoo/butterfly/pistonball_v6", {"wrappers": "supersuit:pad_observations_v0"}, True),
        ("pettingzoo/mpe2.simple_spread_v3", {}, True),
        ("pettingzoo/my_package", {}, True),
        ("pettingzoo/package:Game", {}, True),
        ("pettingzoo/./game.py:Tag", {}, True),
        ("pettingzoo/mpe/../evil", {}, True),
    ],
)
def test_what_names_code_is_told_without_loading_it(scenario: str, settings: dict[str, str], expected: bool) -> None:
    """PettingZoo's own environments are data; any other module, file or wrapper is code."""
    from rlbench.harness.plan import registry

    assert registry.names_code(scenario, settings) is expected


def test_a_lone_agents_environment_may_take_its_seed_by_keyword_only() -> None:
    """As Gymnasium's and PettingZoo's own do, and as it is given it where there are more agents."""
    assert Alone(cast("Any", Keywords())).reset(seed=7) == (7, {})


def test_a_lone_agents_environment_draws_what_it_has() -> None:
    """Its `render` and its metadata are the environment's; where that has none, it has none."""

    class Draws(Keywords):
        metadata: ClassVar = {"render_fps": 7}

        def render(self) -> str:
            return "a picture"

    alone = Alone(cast("Any", Draws()))
    assert (alone.render(), alone.metadata) == ("a picture", {"render_fps": 7})
    with pytest.raises(NotImplementedError):
        Alone(cast("Any", Keywords())).render()


@pytest.mark.parametrize(
    ("given", "left", "expected"),
    [
        (({}, {}, {}, {}, {}), (), "agent solo: step gave it no observation, reward, termination or truncation"),
        (({"solo": 0}, {"solo": 0}, {"solo": False}, {"solo": False}, {}), (), "agent solo: left agents and did not"),
    ],
)
def test_an_only_agent_keeps_the_rules_of_several(given: Any, left: Any, expected: str) -> None:
    """It has all that a step gives, and is there until it ends."""

    class Lies:
        possible_agents = ("solo",)
        agents = left
        observation_space = action_space = staticmethod(lambda _: gymnasium.spaces.Discrete(3))

        def step(self, actions: Any) -> Any:
            assert actions == {"solo": 1}
            return given

    with pytest.raises(ValueError, match=expected):
        Alone(cast("Any", Lies())).step(1)
