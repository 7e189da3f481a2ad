from __future__ import annotations

from dataclasses import replace

import pytest

from harness.registry import load_scenario, load_system
from systems.ddppo.spec import SPEC as DDPPO
from systems.engine.preempt import Never, Threshold
from systems.engine.spec import EngineSystem
from systems.sync.spec import SPEC as SYNC


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
    assert ddppo(preempt__least="0.5", rollout__num_steps="32").rollout.num_steps == 32
    assert ddppo(learn__epochs="4").learn == {"epochs": 4}
    sync = load_system("sync", {"preempt": "threshold", "preempt.p": "0.7"})
    assert isinstance(sync, EngineSystem)
    assert sync.preempt == Threshold(p=0.7)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"preempt.q": "1"}, ("preempt.q", "unknown field", "p, least")),
        ({"preempt": "optimal"}, ("preempt=optimal", "unknown", "never, threshold")),
        ({"preempt.p": "0"}, ("preempt.p=0", "above 0")),
        ({"preempt.p": "x"}, ("preempt.p=x", "number")),
        ({"preempt": "never", "preempt.p": "0.5"}, ("preempt.p", "unknown field")),
        ({"learn.epochs": "0"}, ("learn.epochs=0", "at least 1")),
        ({"rollout.num_steps": "-1"}, ("num_steps=-1", "at least 1")),
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
