from __future__ import annotations

import itertools

import pytest

from rlbench.harness.plan.registry import load_scenario, load_system, names
from rlbench.systems.choices.mixes import nearest, why_impossible
from rlbench.systems.spec import EngineSystem

VARIANTS = EngineSystem.VARIANTS
Mix = dict[str, str]
MIXES: list[Mix] = [dict(zip(VARIANTS, chosen, strict=True)) for chosen in itertools.product(*VARIANTS.values())]
SMALL = {"num_envs": "4", "rollout_steps": "8"}


def load(name: str, settings: Mix) -> EngineSystem:
    """A system with settings, as from the command line."""
    system = load_system(name, settings)
    assert isinstance(system, EngineSystem)
    return system


def refusal(name: str, settings: Mix) -> str:
    """What the command line says of settings that are refused."""
    with pytest.raises(ValueError, match=r".") as refused:
        load(name, settings)
    message = str(refused.value)
    assert "\n" not in message
    return message


def suggested(message: str) -> list[Mix]:
    """The mixes that a message names as the nearest, each as settings."""
    _, found, listed = message.partition("; nearest: ")
    assert found, message
    return [dict(part.split("=") for part in mix.split(":")) for mix in listed.split(", or ")]


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("ddppo", {"overlap": "continuous"}, "overlap=continuous with preempt=threshold: ranks that never stop"),
        ("appo", {"preempt": "threshold"}, "overlap=continuous with preempt=threshold: ranks that never stop"),
        ("appo", {"preempt": "optimal"}, "overlap=continuous with preempt=optimal: ranks that never stop"),
        ("sync", {"overlap": "continuous"}, "overlap=continuous with rollout=fixed: what never ends has no rollout"),
        ("appo", {"rollout": "variable"}, "overlap=continuous with rollout=variable: what never ends has no rollout"),
        ("ver", {"average": "central"}, "average=central with preempt=optimal: one rank collects for all"),
        ("ver", {"rollout": "trajectories"}, "rollout=trajectories with preempt=optimal: a batch is complete or"),
        ("ddppo", {"collect": "actorside"}, "collect=actorside with preempt=threshold: actors send whole"),
        (
            "sync",
            {"collect": "actorside", "rollout": "variable"},
            "collect=actorside with rollout=variable: an actor must know how many steps",
        ),
        ("htsrl", {"collect": "actorside"}, "collect=actorside with overlap=oneahead: actors take the newest weights"),
    ],
)
def test_impossible_mixes(name: str, settings: Mix, reason: str) -> None:
    """Each is refused when the spec is made, with the reason, and every mix that is named as near will do."""
    message = refusal(name, settings)
    assert reason in message
    for mix in suggested(message):
        load(name, settings | mix)


def test_every_mix_works_or_names_one_that_does() -> None:
    """Of all 540 mixes: each is possible, or refused with near ones, and all of these are possible."""
    assert len(MIXES) == 540
    num_refused = 0
    for mix in MIXES:
        if reason := why_impossible(mix, VARIANTS):
            num_refused += 1
            found = suggested(reason)
            assert found
            for near in found:
                assert near.keys() <= mix.keys()
                assert why_impossible(mix | near, VARIANTS) is None, (mix, near)
    assert 100 < num_refused < 400


def test_none_is_nearer() -> None:
    """No possible mix differs in fewer choices than those that are named."""
    possible = [mix for mix in MIXES if why_impossible(mix, VARIANTS) is None]
    for mix in MIXES:
        if mix not in possible:
            fewest = min(sum(mix[choice] != other[choice] for choice in mix) for other in possible)
            assert {near.count("=") for near in nearest(mix, VARIANTS)} == {fewest}


@pytest.mark.parametrize("mix", MIXES[::7], ids=lambda mix: ":".join(mix.values()))
def test_specs_are_refused_as_mixes_are(mix: Mix) -> None:
    """The command line refuses exactly the impossible mixes, whatever system they are set on."""
    for name in ("sync", "appo"):
        if reason := why_impossible(mix, VARIANTS):
            assert reason in refusal(name, mix)
        else:
            system = load(name, mix)
            assert {choice: type(getattr(system, choice)) for choice in VARIANTS} == {
                choice: VARIANTS[choice][variant] for choice, variant in mix.items()
            }


@pytest.mark.parametrize(
    ("choice", "variant"), [(choice, variant) for choice, of_choice in VARIANTS.items() for variant in of_choice]
)
def test_every_variant_can_be_set(choice: str, variant: str) -> None:
    """Each named variant of each choice can be set on at least one system by its name alone."""
    possible = []
    for name in names("rlbench.systems"):
        try:
            system = load(name, {choice: variant})
        except ValueError as refused:
            assert "nearest: " in str(refused)  # noqa: PT017  others take it
        else:
            possible.append(type(getattr(system, choice)))
    assert possible
    assert set(possible) == {VARIANTS[choice][variant]}


def test_central_has_no_settings_of_gossip() -> None:
    """One learner for all has nobody to gossip with: a setting of gossip's is refused, and what there is is named."""
    message = refusal("appo", {"average.beta": "0.5"})
    assert message.startswith("appo:average.beta")
    assert "placement" in message


@pytest.mark.parametrize(
    ("name", "settings", "scenario_settings", "parts"),
    [
        (
            "sync",
            {"collect": "doublebuffered"},
            {"num_envs": "5"},
            ("num_envs=5", "must be even", "nearest: num_envs=6, or collect=dynamic"),
        ),
        ("appo", {}, {"num_envs": "7"}, ("num_envs=7", "must be even", "nearest: num_envs=8, or collect=dynamic")),
        (
            "ver",
            {"collect.min_batch": "5"},
            {"num_envs": "4"},
            ("collect.min_batch=5", "at most num_envs=4", "nearest: min_batch=4"),
        ),
        (
            "appo",
            {"collect.min_batch": "3"},
            {"num_envs": "4"},
            ("collect.min_batch=3", "at most half of num_envs=4", "nearest: min_batch=2"),
        ),
        (
            "appo",
            {"collect.num_envs_per_worker": "4"},
            {"num_envs": "6"},
            ("num_envs_per_worker=4", "divide num_envs=6", "nearest: num_envs_per_worker=6"),
        ),
        (
            "impala",
            {"rollout.batch": "3"},
            {"num_envs": "4"},
            ("rollout.batch=3", "at least num_envs=4", "nearest: rollout.batch="),
        ),
    ],
)
def test_impossible_on_a_scenario(name: str, settings: Mix, scenario_settings: Mix, parts: tuple[str, ...]) -> None:
    """What depends on the number of environments is refused before anything runs, with the nearest that works."""
    system = load(name, settings)
    with pytest.raises(ValueError, match=f"^{name} on emulated") as refused:
        system.check(load_scenario("emulated", "homogeneous", SMALL | scenario_settings))
    message = str(refused.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message
    for near in message.partition("nearest: ")[2].split(", or "):
        key, value = near.split("=")
        if key == "num_envs":
            load(name, settings).check(load_scenario("emulated", "homogeneous", SMALL | {key: value}))
        else:
            key = key if "." in key or key in VARIANTS else f"collect.{key}"
            changed = load(name, settings | {key: value})
            changed.check(load_scenario("emulated", "homogeneous", SMALL | scenario_settings))
