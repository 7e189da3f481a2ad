from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from rlbench.scenarios.gym import families

TASKS = ("walker-walk", "cheetah-run", "ball_in_cup-catch")
OTHERS = ("compatibility-env", "CmuHumanoidRunGaps", "lift_brick_vision")


@pytest.fixture
def _shimmy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What shimmy registers; each task is Gymnasium's pendulum."""
    point = "gymnasium.envs.classic_control.pendulum:PendulumEnv"
    for task in (*TASKS, *OTHERS):
        name = f"dm_control/{task}-v0"
        monkeypatch.setitem(gymnasium.registry, name, EnvSpec(name, entry_point=point, max_episode_steps=1000))
    monkeypatch.setitem(sys.modules, "shimmy", ModuleType("shimmy"))
    monkeypatch.setattr(families, "find_spec", lambda _: True)
    families._controls.cache_clear()
    yield
    families._controls.cache_clear()


@pytest.mark.usefixtures("_shimmy")
def test_tasks_of_the_suite_are_variants() -> None:
    """The suite's tasks are variants, cheetah-run first; an unknown one is answered with them."""
    assert families.DM_CONTROL.variants == ("cheetah-run", "ball_in_cup-catch", "walker-walk")
    with pytest.raises(ValueError, match=r"^dm_control/cheetah: unknown task; did you mean 'cheetah-run'\? "):
        families.DM_CONTROL.make("cheetah", "homogeneous")


@pytest.mark.usefixtures("_shimmy")
def test_a_task_is_its_id() -> None:
    """`dm_control/walker-walk` is the id that shimmy registers, with the settings published for control."""
    scenario = families.DM_CONTROL.make("walker-walk", "homogeneous")
    assert scenario.ids == ("dm_control/walker-walk-v0",)
    assert families.DM_CONTROL.make("", "homogeneous").ids == ("dm_control/cheetah-run-v0",)
    fitted = scenario.completed()
    assert fitted.normalize_observations
    assert isinstance(fitted.action_space, gymnasium.spaces.Box)


@pytest.mark.parametrize("missing", ["shimmy", "dm_control"])
def test_what_is_missing_is_told(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of the two packages there are no variants, and one line says what installs it."""
    monkeypatch.setattr(families, "find_spec", lambda name: None if name == missing else object())
    assert families.DM_CONTROL.variants == ()
    with pytest.raises(ValueError, match=rf"{missing} is not installed; pip install 'shimmy\[dm-control\]'"):
        families.DM_CONTROL.make("", "homogeneous")
