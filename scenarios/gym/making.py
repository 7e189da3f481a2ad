"""Makes environments from text, and tries one, so that its spaces are known, and its faults, before any rank starts.

An environment is tried once in each process that loads its scenario: made, reset with a seed, closed; by the command
itself in a process apart (`trials.py`). Errors are ValueErrors of one line, which say what to mend.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import gymnasium

from rlbench.scenarios.gym import named
from rlbench.scenarios.gym.arguments import value_of
from rlbench.scenarios.gym.pools import OfPool
from rlbench.scenarios.gym.spaces import misfit, unreadable
from rlbench.scenarios.gym.trials import Found, Trials
from rlbench.scenarios.gym.wrappers import Seated, Without

TRIAL_SEED = 0
Spaces = tuple[gymnasium.Space[Any], gymnasium.Space[Any]]
"""Of observations and of actions."""

PACKAGES = (
    (r"ALE/|.*NoFrameskip-v", "ale_py", "ale-py"),
    (r"MiniGrid-|BabyAI-", "minigrid", "minigrid"),
    (r"procgen", "procgen2", "procgen2"),
    (r"Vizdoom", "vizdoom.gymnasium_wrapper", "vizdoom"),
    (
        r"(Fetch|HandReach|HandManipulate|Adroit|AntMaze|PointMaze|FrankaKitchen)",
        "gymnasium_robotics",
        "gymnasium-robotics",
    ),
    (r"(highway|merge|roundabout|parking|intersection|racetrack)-", "highway_env", "highway-env"),
    (r"dm_control/", "shimmy", "shimmy[dm-control]"),
)
"""How ids of well-known packages begin, the module that registers them, and what pip installs."""
EXTRAS = (
    (r"LunarLander|BipedalWalker|CarRacing", "gymnasium[box2d]"),
    (r"Ant|HalfCheetah|Hopper|Humanoid|Inverted|Pusher|Reacher|Swimmer|Walker2d", "gymnasium[mujoco]"),
)
"""How ids of Gymnasium's own begin that need more, and what pip installs."""
NOT_ARGUMENTS = {
    "max_episode_steps": "write max_episode_steps=N",
    "id": "it is the name behind gym/",
    "vectorization_mode": "write vector=sync, process or native",
}
"""What Gymnasium's own makers take, and where it is said here."""
DRAWING = {"render_mode": "rgb_array"}
"""Arguments by which environments draw."""
UNSEEN = {"PYGAME_HIDE_SUPPORT_PROMPT": "hide", "SDL_VIDEODRIVER": "dummy"}
"""Variables by which pygame needs no display to draw, and says nothing."""
RESET = "its first reset"
DISPLAY = re.compile(r"display|video device|X11|xcb|GLFW|window", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What one environment is made from."""

    id: str
    """An id, `module:Id`, or `/path/file.py:Name`."""
    kwargs: tuple[tuple[str, str], ...] = ()
    """Arguments of the constructor, as text; no ranges."""
    wrappers: tuple[str, ...] = ()
    """`module:Name`, the innermost first."""
    without: tuple[str, ...] = ()
    """Entries that are removed from the observation."""
    max_episode_steps: int = 0
    """Env steps after which an episode is truncated; 0: as its id says."""
    code: tuple[str, ...] = ()
    """Hashes of the files it is made from; another text makes another environment."""
    of_envpool: bool = False
    """Whether the id is one of EnvPool's."""


def tried(recipe: Recipe) -> Spaces:
    """Makes an environment, resets and closes it, and returns its spaces. Raises ValueError."""
    return looked_at(lambda: make(recipe), _spaces_of)


def looked_at(opened: Callable[[], Any], look: Callable[[Any], Found]) -> Found:
    """Makes an environment and closes it; returns what it is like. Raises ValueError for the first fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # workers print them too
        env = opened()
        try:
            found = look(env)
        except BaseException:
            with suppress(Exception):  # the first fault is told
                env.close()
            raise
        with told("its close"):
            env.close()
    return found


TRIALS = Trials("gym", tried)
"""Of environments that ids, classes and files name; their spaces."""


def make(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    """Makes an environment. Raises ValueError."""
    if recipe.of_envpool:
        return Seated(OfPool(*pool_arguments(recipe)))
    env = _of_file(recipe) if named.is_file(recipe.id) else _of_id(recipe)
    for name in recipe.wrappers:
        wrapper = named.load(name)
        if not (inspect.isclass(wrapper) and issubclass(wrapper, gymnasium.Wrapper)):
            raise ValueError(f"wrappers={name}: is no subclass of gymnasium.Wrapper")
        with told(f"wrappers={name}: its constructor"):
            env = wrapper(env)
    if recipe.without:
        env = Without(env, recipe.without)
    return Seated(env)


def draw_unseen() -> None:
    """Prepares this process for environments that draw, unless the user has set it otherwise."""
    for name, value in UNSEEN.items():
        os.environ.setdefault(name, value)


def takes_no(error: ValueError, argument: str) -> bool:
    """Whether `told` has said that a constructor does not take an argument, or takes none at all."""
    return any(text in str(error) for text in (f"takes no kwargs.{argument};", "takes no arguments"))


def _of_file(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    maker = named.load(recipe.id)
    if inspect.isroutine(maker):
        instead = "name the class, or register it and name its id, gym/MODULE:ID"
        raise ValueError(f"is a function, and no subclass of gymnasium.Env; {instead}")
    if not (inspect.isclass(maker) and issubclass(maker, gymnasium.Env)):
        raise ValueError("is no subclass of gymnasium.Env")
    with told("its constructor", maker):
        env: gymnasium.Env[Any, Any] = maker(**arguments(recipe))
    if recipe.max_episode_steps:
        return gymnasium.wrappers.TimeLimit(env, recipe.max_episode_steps)
    return env


def _of_id(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    spec = find(recipe.id)
    given = arguments(recipe)
    if spec.entry_point is None:
        raise ValueError("is registered without an entry point")
    maker: Any = spec.entry_point
    if isinstance(maker, str):
        with told("its module", hint=_hint(recipe.id)):
            maker = gymnasium.envs.registration.load_env_creator(maker)
    with told("its constructor", maker, _hint(recipe.id)):
        return gymnasium.make(
            spec, max_episode_steps=recipe.max_episode_steps or None, disable_env_checker=True, **given
        )


def find(name: str) -> gymnasium.envs.registration.EnvSpec:
    """What is registered under an id, `module:Id` imports the module first. Raises ValueError with the nearest ids."""
    home, _, own = name.rpartition(":")
    if name.endswith(".py"):
        raise ValueError(f"name its class too: gym/{name}:CLASS")
    if home:
        named.import_module(home)
    elif name not in gymnasium.registry:
        for begin, module, package in PACKAGES:
            if re.match(begin, name):
                _import_known(module, package)
    if own in gymnasium.registry:
        return gymnasium.registry[own]
    near = difflib.get_close_matches(own, list(gymnasium.registry), n=3, cutoff=0.6)
    if re.fullmatch(r".*-v\d+", own) is None:
        near = [each for each in gymnasium.registry if each.startswith(f"{own}-v")] or near
    told = f"{home} registers no environment {own}" if home else "there is no such environment"
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise ValueError(f"{told}{hint}; one of a package is written gym/PACKAGE:ID, one of a file gym/./FILE.py:CLASS")


def _import_known(module: str, package: str) -> None:
    try:
        named.import_module(module)
    except ValueError as error:
        problem = "is not installed" if "no such module" in str(error) else f"cannot be imported ({error})"
        raise ValueError(f"is of the package {package}, which {problem}; pip install '{package}'") from None


def _hint(name: str) -> str:
    return next((f"; pip install '{package}'" for begin, package in EXTRAS if re.match(begin, name)), "")


def arguments(recipe: Recipe) -> dict[str, Any]:
    """The constructor's arguments, as values. Raises ValueError."""
    given = {key: value_of(text) for key, text in recipe.kwargs}
    if given.get("render_mode") == "human":
        raise ValueError("kwargs.render_mode=human: needs a display, and nobody watches; leave it out")
    for name, instead in NOT_ARGUMENTS.items():
        if name in given:
            raise ValueError(f"kwargs.{name}: is no argument; {instead}")
    return given


def pool_arguments(recipe: Recipe) -> tuple[str, dict[str, Any]]:
    """The id and the arguments by which EnvPool makes environments. Raises ValueError for what it cannot do."""
    if recipe.wrappers or recipe.without:
        what = "wrappers" if recipe.wrappers else "without"
        raise ValueError(f"vector=envpool: {what} would change single environments; use vector=sync or process")
    longest = {"max_episode_steps": recipe.max_episode_steps} if recipe.max_episode_steps else {}
    return recipe.id, arguments(recipe) | longest


@contextmanager
def told(what: str, maker: Any = None, hint: str = "") -> Iterator[None]:
    """Turns what a constructor raises into one line; `hint` says what to install if something is missing."""
    try:
        yield
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ValueError(f"{what} needs what is not installed ({named.said(error)}){hint}") from error
    except (Exception, SystemExit) as error:
        text = named.said(error)
        unknown = re.search(r"unexpected keyword argument '(\w+)'", text)
        if unknown and maker is not None:
            known = ", ".join(_parameters(maker)) or "none"
            raise ValueError(f"{what} takes no kwargs.{unknown[1]}; it takes: {known}") from error
        missing = re.search(r"missing \d+ required .*arguments?: (.+)", text)
        if missing and maker is not None and (names := re.findall(r"'(\w+)'", missing[1])):
            needed = ":".join(f"kwargs.{name}=…" for name in names)
            raise ValueError(f"{what} must be given {', '.join(names)}; write :{needed}") from error
        if unknown and what == RESET and unknown[1] in {"seed", "options"}:
            raise ValueError(
                f"its reset takes no {unknown[1]}; write def reset(self, *, seed=None, options=None)"
            ) from error
        home = type(error).__module__.partition(".")[0]
        if home in {"pyglet", "glfw", "pygame"} or (
            "DISPLAY" in text or "open display" in text or (home != "builtins" and DISPLAY.search(text))
        ):
            raise ValueError(f"{what} needs a display, which is not there ({text}); make it without") from error
        raise ValueError(f"{what} raised {text}") from error


def _parameters(maker: Any) -> list[str]:
    try:
        return [name for name in inspect.signature(maker).parameters if name not in {"args", "kwargs"}]
    except (TypeError, ValueError):
        return []


def _spaces_of(env: gymnasium.Env[Any, Any]) -> Spaces:
    """The spaces of an environment whose first reset keeps to them."""
    for what in ("observation_space", "action_space"):
        space = getattr(env, what, None)
        if not isinstance(space, gymnasium.Space):
            problem = f"its {what} is {type(space).__name__}, it must be one of gymnasium.spaces"
            raise ValueError(problem)  # noqa: TRY004  a user's error
        if found := unreadable(space):
            place, problem = found
            remedy = f"; without={place[0]} removes it" if place and what == "observation_space" else ""
            raise ValueError(f"its {what}: {problem}{remedy}")
    with told(RESET):
        answer: Any = env.reset(seed=TRIAL_SEED)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise ValueError("its first reset must return (observation, info), info a dict")
    if wrong := misfit(env.observation_space, answer[0]):
        raise ValueError(f"its first reset gave an observation outside its observation_space: {wrong}")
    return env.observation_space, env.action_space
