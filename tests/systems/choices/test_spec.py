from __future__ import annotations

from dataclasses import replace

import pytest

from rlbench.harness.plan.registry import SYSTEMS, load_scenario, load_system, names
from rlbench.systems.choices.average import AllReduce, Central, Elastic, Gossip, ParameterServer
from rlbench.systems.choices.collect import ActorSide, DoubleBuffered, Dynamic, Lockstep
from rlbench.systems.choices.overlap import Alternate, Continuous, OneAhead
from rlbench.systems.choices.preempt import Never, Optimal, Threshold
from rlbench.systems.choices.rollout import Fixed, Trajectories, Variable
from rlbench.systems.ddppo.spec import SPEC as DDPPO
from rlbench.systems.spec import EngineSystem
from rlbench.systems.sync.spec import SPEC as SYNC


def ddppo(**settings: str) -> EngineSystem:
    """DD-PPO with settings as from the command line; `__` stands for a dot."""
    system = load_system("ddppo", {key.replace("__", "."): value for key, value in settings.items()})
    assert isinstance(system, EngineSystem)
    return system


def test_the_two_differ_in_preemption_alone() -> None:
    """`ddppo` is `sync` with a threshold of 60 %."""
    assert DDPPO.preempt == Threshold(p=0.6, least=0.25)
    assert replace(DDPPO, name=SYNC.name, about=SYNC.about, preempt=Never()) == SYNC


def test_settings_reach_the_choices() -> None:
    """A choice is named by its variant, its fields with a dot; all else stays."""
    assert ddppo() == DDPPO
    assert ddppo(preempt__p="0.8") == replace(DDPPO, preempt=Threshold(p=0.8))
    assert ddppo(preempt="never") == replace(DDPPO, preempt=Never())
    assert ddppo(preempt__least="0.5", rollout__num_steps="32").rollout == Fixed(num_steps=32)
    assert ddppo(learn__epochs="4").learn == {"epochs": 4}
    sync = load_system("sync", {"preempt": "threshold", "preempt.p": "0.7"})
    assert isinstance(sync, EngineSystem)
    assert sync.preempt == Threshold(p=0.7)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"preempt.q": "1"}, ("preempt.q", "unknown field", "preempt.p, preempt.least")),
        ({"preempt": "sometimes"}, ("preempt=sometimes", "unknown", "never, threshold, optimal")),
        ({"preempt.p": "0"}, ("preempt.p=0", "above 0")),
        ({"preempt.p": "x"}, ("preempt.p=x", "number")),
        ({"preempt": "never", "preempt.p": "0.5"}, ("preempt.p", "unknown field")),
        ({"learn.epochs": "0"}, ("learn.epochs=0", "at least 1")),
        ({"rollout.num_steps": "-1"}, ("num_steps=-1", "at least 1")),
        ({"rollout": "trajectories", "rollout.batch": "-1"}, ("rollout.batch=-1", "at least 1")),
        ({"preempt": "optimal", "preempt.p": "0.5"}, ("preempt.p", "unknown field", "fill_stale")),
        ({"preempt": "optimal", "preempt.fill_stale": "maybe"}, ("preempt.fill_stale=maybe", "boolean")),
        ({"preempt": "never", "overlap": "continuous", "overlap.max_lag": "0"}, ("max_lag=0", "overlap=alternate")),
        ({"collect": "dynamic", "collect.min_batch": "0"}, ("collect.min_batch=0", "at least 1")),
        ({"name": "mine"}, ("name", "unknown field", "preempt")),
    ],
)
def test_bad_settings(settings: dict[str, str], parts: tuple[str, ...]) -> None:
    """An unknown field, variant or value is refused in one line that says the rule or lists the known."""
    with pytest.raises(ValueError, match=parts[0].replace(".", r"\.")) as refusal:
        load_system("ddppo", settings)
    message = str(refusal.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message


def test_learning_settings_of_the_system_win() -> None:
    """The system's learning settings replace the scenario's, field by field."""
    scenario = load_scenario("emulated", "homogeneous", {})
    checked = ddppo(learn__epochs="3").check(scenario)
    assert checked.learn == replace(scenario.learn, epochs=3)


@pytest.mark.parametrize(
    ("settings", "scenario_settings", "message"),
    [
        ({"learn.num_minibatches": "4"}, {"num_envs": "2"}, "num_envs=2 cannot fill learn.num_minibatches=4"),
        ({}, {"rollout_steps": "2"}, "of 2 steps is less than one step"),
        ({"average": "parameterserver", "learn.weight_decay": "0.1"}, {}, "the server steps, at average.learning_rate"),
        ({"average": "parameterserver", "learn.schedule": "linear"}, {}, "must be constant and 0"),
        (
            {"preempt": "never", "rollout": "trajectories", "overlap": "continuous", "learn.epochs": "21"},
            {},
            r"max_lag=20 optimiser steps: must be at least the 42 of a batch \(learn.epochs=21 x learn.num_min",
        ),
        ({"preempt.least": "0"}, {}, "would have nothing to learn; raise it, or use preempt=never"),
    ],
)
def test_impossible_together(settings: dict[str, str], scenario_settings: dict[str, str], message: str) -> None:
    """What a system and a scenario cannot do together is refused with the reason, before anything runs."""
    system = load_system("ddppo", settings)
    assert isinstance(system, EngineSystem)
    with pytest.raises(ValueError, match=message) as refusal:
        system.check(load_scenario("emulated", "homogeneous", scenario_settings))
    assert "\n" not in str(refusal.value)


APPO_LEARNS = {
    "correct": "vtrace",
    "epochs": 1,
    "num_minibatches": 1,
    "clip": 0.1,
    "clip_low": 1 / 1.1,
    "adam_eps": 1e-6,
    "entropy_coef": 0.003,
    "max_grad_norm": 4.0,
}
STREAM = Trajectories(num_steps=32, batch=2048)
Choices = tuple[object, object, object, object, object]
COMPOSITIONS: dict[str, Choices] = {
    "sync": (Lockstep(), Fixed(), Alternate(), Never(), AllReduce()),
    "ddppo": (Lockstep(), Fixed(), Alternate(), Threshold(p=0.6, least=0.25), AllReduce()),
    "nover": (Dynamic(), Fixed(), Alternate(), Optimal(fill_stale=False), AllReduce()),
    "ver": (Dynamic(), Variable(), Alternate(), Optimal(fill_stale=True), AllReduce()),
    "appo": (DoubleBuffered(), STREAM, Continuous(), Never(), Central(placement="separate")),
    "gossip": (Dynamic(), Fixed(), Alternate(), Never(), Gossip(mode="pull")),
    "htsrl": (Dynamic(), Fixed(), OneAhead(), Never(), AllReduce()),
    "impala": (ActorSide(), STREAM, Continuous(), Never(), Central(placement="separate")),
    "easgd": (Lockstep(), Fixed(), Alternate(), Never(), Elastic()),
    "downpour": (Lockstep(), Fixed(), Alternate(), Never(), ParameterServer()),
}


def system_named(name: str) -> EngineSystem:
    """A system as it comes."""
    system = load_system(name, {})
    assert isinstance(system, EngineSystem)
    assert system.name == name
    return system


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions(name: str) -> None:
    """Each system is the five choices that the design names."""
    system = system_named(name)
    *expected, average = COMPOSITIONS[name]
    assert [system.collect, system.rollout, system.overlap, system.preempt] == expected
    assert type(system.average) is type(average)
    if not isinstance(average, ParameterServer):  # its optimiser goes with the learning settings
        assert system.average == average


def test_the_design_names_all_systems() -> None:
    """No system is installed that the design does not name, and all that it names are."""
    assert sorted(COMPOSITIONS) == [name for name in names(SYSTEMS) if isinstance(load_system(name, {}), EngineSystem)]


def test_learning_settings_of_the_papers() -> None:
    """VER truncates importance weights at 1; Sample Factory's are its section 3.4 and table A.5; DD-PPO's the defaults.

    The step size of Adam stays the scenario's, so that these systems differ in scheduling and communication alone;
    gossip and its baselines are SGD (dissertation, chapter 3), with Nesterov's momentum of 0.9 where ranks have one.
    """
    learns = {name: dict(system_named(name).learn) for name in COMPOSITIONS}
    assert learns["ver"] == {"correct": "truncated_is"}
    assert learns["appo"] == APPO_LEARNS
    assert learns["impala"] == {"correct": "vtrace", "epochs": 1, "num_minibatches": 1}
    assert [name for name in ("sync", "ddppo", "nover", "htsrl") if learns[name]] == []
    assert {learns[name]["optimizer"] for name in ("gossip", "easgd", "downpour")} == {"sgd"}
    assert (learns["gossip"]["momentum"], learns["easgd"]["momentum"]) == (0.9, 0.9)


def test_who_is_in_step_and_who_survives() -> None:
    """Ranks of all-reduce and of one learner end iterations together; gossip and its baselines survive a lost rank."""
    asynchronous = {"gossip", "easgd", "downpour"}
    assert {name for name in COMPOSITIONS if not system_named(name).in_step} == asynchronous
    assert {name for name in COMPOSITIONS if system_named(name).survives_lost_rank} == asynchronous
