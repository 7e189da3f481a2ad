from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from rlbench.harness.contract.settings import LearnSettings
from rlbench.harness.contract.traits import Traits
from rlbench.harness.plan import registry
from rlbench.systems.external.library import LibrarySystem
from rlbench.systems.external.spaces import LIBRARIES, OURS, Takes, why_not_spaces
from tests.libraries.spaces_scenario import FAMILY, SPACES, AnySpaces

NUMBERS, ARM = SPACES["arm"]
EVERYTHING = {"sb3-ppo", "sample-factory", "rllib-appo", "rllib-impala", "torchrl-ppo"}
TAKEN = {
    "arm": EVERYTHING,
    "grid-arm": EVERYTHING,
    "levers": EVERYTHING - {"torchrl-ppo"},
    "switches": {"sb3-ppo"},
    "both": {"sb3-ppo"},
    "joint": {"sample-factory"},
    "tree": set[str](),
}
"""By variant, the systems of libraries that take its spaces."""


def load(name: str) -> LibrarySystem:
    """A system that is made with a library."""
    return cast("LibrarySystem", registry.load_system(name, {}))


def scenario(variant: str, **settings: Any) -> AnySpaces:
    """One of the scenarios with any spaces."""
    return replace(FAMILY.make(variant, "homogeneous"), **settings)


def refused(name: str, made: AnySpaces) -> str:
    """What a system says of a scenario that it does not take."""
    with pytest.raises(ValueError, match=re.escape(f"{name} on any-spaces/")) as raised:
        load(name).check(made)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("variant", SPACES)
@pytest.mark.parametrize("name", sorted(EVERYTHING))
def test_each_takes_what_its_library_can(name: str, variant: str) -> None:
    """Its check passes, or says in one line what it takes and which systems take the scenario's spaces."""
    system, made = load(name), scenario(variant)
    asked = Traits.of(system).why_not_spaces
    assert asked is not None
    reason = asked(made.observation_space, made.action_space)
    if name in TAKEN[variant]:
        assert reason is None
        assert system.check(made).policy in {**system.policies, **system.number_policies}
        return
    assert reason is not None
    said = refused(name, made)
    assert said.startswith(f"{name} on {made.name}: {reason}; use {', '.join(OURS)}")
    assert set(said.rpartition("; use ")[2].split(", ")) == {*OURS, *TAKEN[variant]}


@pytest.mark.parametrize("name", registry.names(registry.SYSTEMS))
def test_ours_take_everything_but_what_has_no_size(name: str) -> None:
    """Each variant; of texts, and of images that do not show where the channels are, they say why not."""
    asked = Traits.of(registry.load_system(name, {})).why_not_spaces
    assert asked is not None
    assert [asked(*spaces) for spaces in SPACES.values()] == [None] * len(SPACES)
    cube = Box(0, 255, (40, 40, 40), np.uint8)
    for spaces in ((Text(3), ARM), (NUMBERS, Text(3)), (cube, ARM)):
        assert "\n" not in (asked(*spaces) or "\n")


def test_habitat_baselines_takes_its_tasks_alone() -> None:
    """Observations by their names, and Discrete actions."""
    asked = Traits.of(load("habitat-ver")).why_not_spaces
    assert asked is not None
    pixels = Dict({"pixels": Box(0, 255, (3, 72, 128), np.uint8)})
    assert asked(pixels, Discrete(4)) is None
    assert asked(pixels, MultiBinary(4)) == "actions MultiBinary(4): it takes Discrete"
    assert asked(SPACES["arm"][0], Discrete(4)) == (
        "observations observation: its adapter takes pixels alone or depth and goal alone"
    )


def test_a_refusal_reads_like_this() -> None:
    """The system, the scenario, the space, the rule, and what to use."""
    assert refused("torchrl-ppo", scenario("levers")) == (
        "torchrl-ppo on any-spaces/levers: actions MultiDiscrete([3 2]): it takes Discrete or Box; use sync, ver, "
        "appo, gossip, sb3-ppo, sample-factory, rllib-appo, rllib-impala"
    )


@pytest.mark.parametrize(
    ("takes", "spaces", "why"),
    [
        (LIBRARIES["sb3-ppo"], (NUMBERS, Discrete(3, start=1)), "it counts actions from 0"),
        (LIBRARIES["sb3-ppo"], (NUMBERS, MultiDiscrete([2, 2], start=[0, 1])), "it counts actions from 0"),
        (LIBRARIES["sb3-ppo"], (NUMBERS, MultiDiscrete(np.full((2, 2), 3))), "it takes one row of numbers"),
        (LIBRARIES["sb3-ppo"], (NUMBERS, MultiBinary((2, 2))), "it takes one row of bits"),
        (LIBRARIES["sb3-ppo"], (NUMBERS, Box(-np.inf, np.inf, (2,))), "it takes a Box with finite bounds"),
        (LIBRARIES["torchrl-ppo"], (NUMBERS, Box(0, 9, (2,), np.int64)), "it takes a Box of floats"),
        (LIBRARIES["torchrl-ppo"], (NUMBERS, Box(0, 1, ())), "it takes a Box with an axis and at least one number"),
        (LIBRARIES["sample-factory"], (NUMBERS, Tuple((ARM, Tuple((ARM,))))), "it takes a Tuple of Discrete, Multi"),
        (LIBRARIES["sb3-ppo"], (Dict({"said": Text(3)}), ARM), "observation said Text("),
        (LIBRARIES["sb3-ppo"], (Box(0, 9, (1, 64, 64), np.float32), ARM), "it takes images of uint8"),
        (LIBRARIES["sb3-ppo"], (Dict({}), ARM), "observations: must have an entry"),
        (Takes(), (NUMBERS, Discrete(2)), "float64) are numbers: it takes one image"),
    ],
)
def test_what_no_network_reads_or_chooses(takes: Takes, spaces: tuple[Any, Any], why: str) -> None:
    """Each is refused with its rule, on one line."""
    said = why_not_spaces(takes, *spaces)
    assert said is not None
    assert why in said
    assert "\n" not in said


def test_large_bounds_stay_on_one_line() -> None:
    """A space's text is cut."""
    box = Box(np.arange(100, dtype=np.int64), np.arange(100, dtype=np.int64) + 1, dtype=np.int64)
    said = why_not_spaces(LIBRARIES["sb3-ppo"], NUMBERS, box)
    assert said is not None
    assert len(said) < 130
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("sb3-ppo", {"action_bounds": "tanh"}, "action_bounds=tanh: known: clip"),
        ("torchrl-ppo", {"action_std": "learned"}, "action_std=learned: known: shared"),
        ("torchrl-ppo", {"normalize_observations": True}, "normalize_observations=true: its adapter hands on no such"),
        ("rllib-appo", {"normalize_observations": True}, "normalize_observations=true: its adapter hands on no such"),
        ("sb3-ppo", {"policy": "nature"}, "policy=nature: has no such network; known: small"),
        ("sb3-ppo", {"image_order": "chw-"}, "image_order=chw-: unknown; known: auto, hwc, chw"),
    ],
)
def test_what_a_library_does_not_do_with_numbers(name: str, settings: dict[str, Any], why: str) -> None:
    """Its actions and scaling are what it can do, or refused."""
    assert why in refused(name, scenario("arm", **settings))


def test_settings_for_numbers_do_not_matter_without_any() -> None:
    """Bounds of actions that have none, and scaling of images, refuse nothing."""
    load("sb3-ppo").check(scenario("levers", action_bounds="tanh"))
    load("torchrl-ppo").check(scenario("grid-arm", normalize_observations=True))


def test_rewards_are_scaled_by_stable_baselines_alone() -> None:
    """The others refuse the setting."""
    made = scenario("arm", learn=LearnSettings(normalize_rewards=True))
    load("sb3-ppo").check(made)
    for name in EVERYTHING - {"sb3-ppo"}:
        assert "learn.normalize_rewards=true: its adapter hands on no such scaling" in refused(name, made)


@pytest.mark.parametrize("name", ["sb3-ppo", "sample-factory"])
def test_observations_are_scaled_where_the_library_does(name: str) -> None:
    """Its trainer is told, and the record says that its moments change at other times than ours."""
    system = load(name)
    made = system.check(scenario("arm", normalize_observations=True))
    assert made.policy == "small"
    assert "running moments" in system.departures(made)
    assert "running moments" not in system.departures(system.check(scenario("arm")))
    assert system.known_work({"policy": "small"})["policy"] != "small"


def test_a_library_with_no_word_takes_what_they_all_did() -> None:
    """One image and Discrete actions."""
    image: gymnasium.Space[Any] = Dict({"pixels": Box(0, 255, (3, 72, 128), np.uint8)})
    assert why_not_spaces(Takes(), image, Discrete(4)) is None
    assert why_not_spaces(Takes(), image, MultiBinary(2)) == "actions MultiBinary(2): it takes Discrete"
