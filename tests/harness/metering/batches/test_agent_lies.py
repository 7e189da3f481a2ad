from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlbench.harness.contract.agents import InAgents, agents_per_env, num_rows
from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.envs import make_counted_agents
from rlbench.harness.metering.batches.counted_agents import CountedAgents
from tests.harness.metering.batches.vector_scenarios import meter, seats_of

AGENTS = ("wolf", "sheep_0", "sheep_1")
PARTS = ("observations", "rewards", "terminations", "truncations", "infos")


@dataclass
class Scripted:
    """A scenario whose environment gives what it says; `lie` changes the answer of a step, and who is there then."""

    lie: Callable[[dict[str, Any]], object] = lambda _: None
    first: Callable[[dict[str, Any]], object] = lambda _: None
    """Changes the answer of a reset."""
    names: Any = AGENTS
    odd: dict[str, Any] = field(default_factory=dict)
    """Observation spaces of some agents."""
    odd_actions: dict[str, Any] = field(default_factory=dict)
    observation_space: Any = field(default_factory=lambda: Box(-1.0, 1.0, (2,), np.float32))
    action_space: Any = field(default_factory=lambda: Discrete(2))
    num_envs: int = 4
    agents_per_env: int = 3
    envs_per_batch: int = 3

    def make_envs(self, seats: Sequence[Seat]) -> Any:
        """A `ScriptedEnv`."""
        assert len(seats) == 3
        return ScriptedEnv(self)


class ScriptedEnv:
    """Steps through the script; the last agent is away at first."""

    def __init__(self, script: Scripted) -> None:
        self.script = script
        if script.names is not None:
            self.possible_agents = script.names
        self.agents: Any = None

    def observation_space(self, agent: str) -> Any:
        """The stated one."""
        return self.script.odd.get(agent, self.script.observation_space)

    def action_space(self, agent: str) -> Any:
        """The stated one."""
        return self.script.odd_actions.get(agent, self.script.action_space)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """All but the last agent are there."""
        del seed, options
        here = list(AGENTS[:2])
        answer: dict[str, Any] = {"agents": here, "observations": dict.fromkeys(here, np.zeros(2, np.float32))}
        answer |= {"infos": {}, "whole": ()}
        self.script.first(answer)
        self.agents = answer["agents"]
        return (answer["observations"], answer["infos"]) if answer["whole"] == () else answer["whole"]

    def step(self, actions: dict[str, Any]) -> Any:
        """An answer, changed."""
        answer: dict[str, Any] = {
            "agents": list(self.agents),
            "observations": dict.fromkeys(actions, np.zeros(2, np.float32)),
            "rewards": dict.fromkeys(actions, 0.0),
            "terminations": dict.fromkeys(actions, False),
            "truncations": dict.fromkeys(actions, False),
            "infos": {},
            "whole": (),
        }
        self.script.lie(answer)
        self.agents = answer["agents"]
        return tuple(answer[part] for part in PARTS) if answer["whole"] == () else answer["whole"]

    def close(self) -> None:
        """Nothing to do."""


def scripted(folder: Path, script: Scripted) -> CountedAgents:
    """Environment 2 of a run, whose agents are rows 6, 7 and 8."""
    path, _ = meter(folder / "run", 5)
    return make_counted_agents(script, seats_of(3), folder / "run", path)


def of(part: str, value: Any, agent: str = "sheep_0") -> Callable[[dict[str, Any]], object]:
    """Sets what one agent gets."""
    return lambda answer: answer[part].update({agent: value})


def without(part: str, agent: str = "sheep_0") -> Callable[[dict[str, Any]], object]:
    """Takes away what one agent gets."""
    return lambda answer: answer[part].pop(agent)


def leaves(agent: str, *, by: str | None) -> Callable[[dict[str, Any]], object]:
    """An agent is no longer there, with that flag set."""

    def lie(answer: dict[str, Any]) -> None:
        answer["agents"].remove(agent)
        if by is not None:
            answer[by][agent] = True

    return lie


WHO = "environment 2, agent sheep_0"
ANSWERS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nan": (of("rewards", np.nan), rf"{WHO} gave the reward nan: it must be finite"),
    "huge": (of("rewards", 1e39), rf"{WHO} gave the reward 1e\+39: it must be a number that float32 can hold"),
    "huger": (of("rewards", 10**400), rf"{WHO} gave the reward .*: it must be finite"),
    "text": (of("rewards", "a"), rf"{WHO} gave the reward 'a' \(str\): it must be a real number"),
    "no reward": (without("rewards"), rf"{WHO} gave no reward; the agents that have one: \['wolf'\]"),
    "no end": (without("terminations"), rf"{WHO} gave no termination; the agents"),
    "no cut": (without("truncations"), rf"{WHO} gave no truncation; the agents"),
    "no observation": (without("observations"), rf"{WHO} gave no observation; the agents"),
    "flag": (of("terminations", 1), rf"{WHO} gave the termination 1: it must be a bool"),
    "shape": (of("observations", np.zeros(3, np.float32)), rf"{WHO} gave an observation of shape \(3,\).*be \(2,\)"),
    "dtype": (of("observations", np.zeros(2, int)), rf"{WHO} gave an observation of dtype 'int64' .*be float32"),
    "infinite": (of("observations", np.array([0, np.inf])), rf"{WHO} gave an observation with inf: it must be finite"),
    "info": (of("infos", 3), rf"{WHO} gave the info 3: it must be a dict"),
    "frames": (of("infos", {"num_frames": -1}), rf"{WHO} gave num_frames = -1: it must be a whole number"),
    "raw": (of("infos", {"raw_reward": np.inf}), rf"{WHO} gave the raw_reward inf: it must be finite"),
    "success": (
        lambda answer: (leaves("sheep_0", by="truncations")(answer), of("infos", {"success": 2.0})(answer)),
        rf"{WHO} gave success = 2\.0: it must be a number from 0 to 1",
    ),
    "last observation": (
        lambda answer: (leaves("sheep_0", by="truncations")(answer), without("observations")(answer)),
        rf"{WHO} gave no observation; the agents",
    ),
    "vanished": (leaves("sheep_0", by=None), rf"{WHO} left agents and did not end: its termination or truncation"),
    "stayed": (of("truncations", value=True), rf"{WHO} ended and is in agents: `step` must remove it, at least until"),
    "came unseen": (
        lambda answer: answer["agents"].append("sheep_1"),
        r"environment 2, agent sheep_1 gave no observation; the agents",
    ),
    "stranger": (lambda answer: answer["agents"].append("fox"), r"environment 2 has agents .*'fox'.*possible_agents"),
    "no agents": (lambda answer: answer.update(agents=None), r"environment 2 has agents None .*possible_agents"),
    "whole": (
        lambda answer: answer.update(whole=({}, {})),
        r"environment 2 step gave .*must be \(observations, re",
    ),
    "list": (lambda answer: answer.update(rewards=[0, 0]), r"environment 2 step gave .*all dicts by agent"),
}
RESETS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nobody": (lambda answer: answer.update(agents=[]), r"environment 2 was reset and has agents \[\].*who can act"),
    "unseen": (without("observations", "wolf"), r"environment 2, agent wolf gave no observation"),
    "whole": (
        lambda answer: answer.update(whole={}),
        r"environment 2 reset gave .*must be \(observations, infos\)",
    ),
}
MADE: dict[str, tuple[dict[str, Any], str]] = {
    "others": (
        {"names": ("a", "b")},
        r"make_envs gave \['a', 'b'\] .*possible_agents: the scenario states 3 agents",
    ),
    "twice": ({"names": ("a", "b", "b")}, r"as possible_agents: the scenario states 3 agents"),
    "none": ({"names": None}, r"make_envs gave a ScriptedEnv: it must give a PettingZoo parallel environment"),
    "observations": (
        {"odd": {"sheep_1": Box(-1.0, 1.0, (3,), np.float32)}},
        r"make_envs gave observation_space\('sheep_1'\) = .*: the scenario states Box.*, for every agent",
    ),
    "actions": ({"odd_actions": {"wolf": Discrete(5)}}, r"make_envs gave action_space\('wolf'\) = Discrete\(5\)"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_wrong_answers_are_refused(name: str, tmp_path: Path) -> None:
    """In one line that names the environment and the agent; the step counts as well."""
    lie, expected = ANSWERS[name]
    agents = scripted(tmp_path, Scripted(lie))
    agents.reset()
    with pytest.raises(ValueError, match=expected) as refused:
        agents.step(np.zeros(3, int))
    assert "\n" not in str(refused.value)
    assert agents._env_steps.tolist() == [1, 1, 0]


@pytest.mark.parametrize("name", RESETS)
def test_wrong_resets_are_refused(name: str, tmp_path: Path) -> None:
    """In one line, too."""
    lie, expected = RESETS[name]
    with pytest.raises(ValueError, match=expected):
        scripted(tmp_path, Scripted(first=lie)).reset()


@pytest.mark.parametrize("name", MADE)
def test_what_is_not_stated_is_refused_when_it_is_made(name: str, tmp_path: Path) -> None:
    """Other agents, or agents that differ in what they see or do."""
    changes, expected = MADE[name]
    with pytest.raises(ValueError, match=expected):
        scripted(tmp_path, Scripted(**changes))


def test_what_others_get_is_not_looked_at(tmp_path: Path) -> None:
    """An environment may answer for agents that did not act, and give infos of no agent."""

    def lie(answer: dict[str, Any]) -> None:
        answer["rewards"]["sheep_1"] = np.nan
        answer["terminations"]["sheep_1"] = True
        answer["infos"] = {"wolf": {"num_frames": 2}, "__common__": 7}

    agents = scripted(tmp_path, Scripted(lie))
    agents.reset()
    step = agents.step(np.zeros(3, int))
    assert step.counts.tolist() == [True, True, False]
    assert not step.ended.any()
    assert agents._frames.tolist() == [2, 0, 0]


def test_rows_are_agents() -> None:
    """Four environments of three agents have twelve rows; where a scenario says nothing, a row is an environment."""
    script: InAgents = Scripted()
    assert (agents_per_env(script), num_rows(Scripted())) == (3, 12)

    class Alone:
        num_envs = 4

    assert (agents_per_env(Alone()), num_rows(Alone())) == (1, 4)
