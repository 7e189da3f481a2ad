"""Makes parallel environments from text, and tries one, so that its faults are known before any rank starts.

An environment is tried once in each process that loads its scenario: made, reset with a seed, closed; by the command
itself in a process apart (`scenarios/gym/trials.py`). Errors are ValueErrors of one line, which say what to mend.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium

from rlbench.scenarios.gym import named
from rlbench.scenarios.gym.arguments import value_of
from rlbench.scenarios.gym.making import TRIAL_SEED, looked_at, told
from rlbench.scenarios.gym.spaces import misfit, unreadable
from rlbench.scenarios.gym.trials import Trials
from rlbench.scenarios.pettingzoo_envs.finding import module_of

if TYPE_CHECKING:
    from rlbench.harness.contract.agents import ParallelLike

METHODS = ("reset", "step", "observation_space", "action_space")
PADDING = {
    "observation": "supersuit:pad_observations_v0",
    "action": "supersuit:pad_action_space_v0",
}
"""Wrappers that make the spaces of all agents alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What one environment is made from."""

    id: str
    """The name of a module, `module:Name`, or `/path/file.py:Name`."""
    kwargs: tuple[tuple[str, str], ...] = ()
    """Arguments of the constructor, as text; no ranges."""
    wrappers: tuple[str, ...] = ()
    """`module:Name`, the innermost first."""
    code: tuple[str, ...] = ()
    """Hashes of the files it is made from; another text makes another environment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What all environments of a scenario have in common."""

    agents: tuple[str, ...]
    """Their `possible_agents`."""
    observation_space: gymnasium.Space[Any]
    """That of every agent."""
    action_space: gymnasium.Space[Any]
    """That of every agent."""


def tried(recipe: Recipe) -> Kind:
    """Makes an environment, resets and closes it; what it is like. Raises ValueError."""
    return looked_at(lambda: make(recipe), _kind_of)


TRIALS = Trials("pettingzoo", tried)


def make(recipe: Recipe) -> ParallelLike:
    """Makes an environment. Raises ValueError."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "hide")
    maker = maker_of(recipe.id)
    with told("its constructor", maker):
        env = maker(**_arguments(recipe))
    for name in recipe.wrappers:
        wrapper = named.load(name)
        if not callable(wrapper):
            problem = f"wrappers={name}: is a {type(wrapper).__name__}, it must take an environment"
            raise ValueError(problem)  # noqa: TRY004  a user's error
        with told(f"wrappers={name}: it"):
            env = wrapper(env)
    return checked(env)


def maker_of(name: str) -> Any:
    """What makes an environment: the `parallel_env` of a module, or what a text names. Raises ValueError."""
    if ":" in name:
        maker = named.load(name)
        if not callable(maker):
            raise ValueError(f"is a {type(maker).__name__}, it must be a class, or a function that makes one")
        if inspect.isclass(maker) and hasattr(maker, "agent_iter"):
            raise ValueError(_in_turn(f"is an AEC environment ({maker.__name__})"))
        return maker
    module = module_of(name)
    maker = getattr(module, "parallel_env", None)
    if maker is None:
        if hasattr(module, "env") or hasattr(module, "raw_env"):
            raise ValueError(_in_turn(f"{module.__name__} has no parallel_env"))
        raise ValueError(f"{module.__name__} has no parallel_env; a class is written pettingzoo/MODULE:CLASS")
    return maker


def _in_turn(what: str) -> str:
    return (
        f"{what}: its agents act one after the other, and systems here take those that act together; "
        "pettingzoo.utils.aec_to_parallel makes some so"
    )


def checked(env: Any) -> ParallelLike:
    """An environment that has what a parallel one has. Raises ValueError."""
    if hasattr(env, "agent_iter"):
        raise ValueError(_in_turn(f"gave an AEC environment ({type(env).__name__})"))
    if missing := [name for name in METHODS if not callable(getattr(env, name, None))]:
        raise ValueError(f"gave a {type(env).__name__}, which is no parallel environment: it has no {missing[0]}()")
    agents = getattr(env, "possible_agents", None)
    if not isinstance(agents, Sequence) or isinstance(agents, str) or not agents:
        raise ValueError(f"its possible_agents are {agents!r:.60}; they must be the names of all agents there may be")
    if len(set(agents)) < len(agents):
        raise ValueError(f"its possible_agents are not all different: {', '.join(map(str, agents)):.60}")
    known: ParallelLike = env
    return known


def _arguments(recipe: Recipe) -> dict[str, Any]:
    given = {key: value_of(text) for key, text in recipe.kwargs}
    if given.get("render_mode") == "human":
        raise ValueError("kwargs.render_mode=human: needs a display, and nobody watches; leave it out")
    return given


def _kind_of(env: ParallelLike) -> Kind:
    """What an environment is like whose first reset keeps to its spaces."""
    agents = tuple(env.possible_agents)
    of_each = {what: [_space(env, what, agent) for agent in agents] for what in PADDING}
    _check_same(of_each, agents)
    spaces = {what: of_agents[0] for what, of_agents in of_each.items()}
    for what, space in spaces.items():
        if found := unreadable(space):
            raise ValueError(f"its {what}_space: {found[1]}")
    with told("its first reset"):
        answer: Any = env.reset(seed=TRIAL_SEED)
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(isinstance(each, Mapping) for each in answer)):
        raise ValueError("its first reset must return (observations, infos), dicts by agent")
    if not env.agents:
        raise ValueError("its first reset left no agents: `agents` is empty")
    for agent in env.agents:
        if agent not in agents:
            raise ValueError(f"agent {agent}: is in `agents` after its first reset, but not in `possible_agents`")
        if agent not in answer[0]:
            raise ValueError(f"agent {agent}: its first reset gave it no observation")
        if wrong := misfit(spaces["observation"], answer[0][agent]):
            raise ValueError(f"agent {agent}: its first observation is outside its observation_space: {wrong}")
    return Kind(agents=agents, observation_space=spaces["observation"], action_space=spaces["action"])


def _space(env: ParallelLike, what: str, agent: str) -> gymnasium.Space[Any]:
    """A space of an agent; `what` is `observation` or `action`."""
    with told(f"its {what}_space({agent!r})"):
        space: Any = getattr(env, f"{what}_space")(agent)
    if not isinstance(space, gymnasium.Space):
        problem = f"its {what}_space({agent!r}) is {type(space).__name__}, it must be one of gymnasium.spaces"
        raise ValueError(problem)  # noqa: TRY004  a user's error
    return space


def _check_same(of_each: Mapping[str, Sequence[gymnasium.Space[Any]]], agents: Sequence[str]) -> None:
    """Raises ValueError unless all agents have the same spaces: says which differ first, and what pads them all."""
    differ = {
        what: next(place for place, space in enumerate(spaces) if space != spaces[0])
        for what, spaces in of_each.items()
        if any(space != spaces[0] for space in spaces)
    }
    for what, place in differ.items():
        pads = "+".join(PADDING[each] for each in differ)
        first, other = of_each[what][0], of_each[what][place]
        raise ValueError(
            f"the {what} space of {agents[0]} is {first}, that of {agents[place]} is {other}; agents share a policy, "
            f"so they must have the same spaces: wrappers={pads} pads them (pip install supersuit)"
        )
