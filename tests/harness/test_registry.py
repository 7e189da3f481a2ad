from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from harness import registry


def test_ours_are_there() -> None:
    """The systems and scenarios of this package are entry points like anybody's."""
    assert {"sync", "ddppo"} <= set(registry.names(registry.SYSTEMS))
    assert {"pointnav", "atari", "vizdoom", "habitat", "emulated"} <= set(registry.names(registry.SCENARIOS))


def test_names_are_sorted_and_unique() -> None:
    """A name is listed once, wherever its packages come from."""
    for group in (registry.SYSTEMS, registry.SCENARIOS):
        names = registry.names(group)
        assert names == sorted(set(names))


@pytest.mark.parametrize("name", ["sync", "ddppo"])
def test_systems_say_what_they_are(name: str) -> None:
    """A system's name is that of its entry point, and it says in a line what it is."""
    system = registry.load_system(name, {})
    assert system.name == name
    assert system.about
    assert "\n" not in system.about


@pytest.mark.parametrize(
    "name", ["pointnav", "atari", "vizdoom", "emulated", "emulated/open-fridge", "vizdoom/my_way_home"]
)
@pytest.mark.parametrize("workload", ["homogeneous", "heterogeneous"])
def test_scenarios_fulfil_the_contract(name: str, workload: str) -> None:
    """Each scenario has what the contract names, and its name loads it again."""
    scenario = registry.load_scenario(name, workload, {})
    assert scenario.workload == workload
    assert registry.load_scenario(scenario.name, workload, {}) == scenario
    assert scenario.name.startswith(name)
    assert scenario.num_envs >= scenario.learn.num_minibatches
    assert scenario.rollout_steps >= 1
    assert scenario.num_actions >= 2
    assert scenario.observation_space.spaces
    assert scenario.gpu_costs.learn_item_s > 0
    assert isinstance(scenario.preload, tuple)


def test_loading_by_name_imports_only_what_was_asked_for() -> None:
    """Entry points are loaded lazily: one scenario's simulator is not imported for another."""
    program = (
        "import sys; from harness import registry; registry.load_scenario('emulated', 'homogeneous', {})\n"
        "registry.load_system('ddppo', {})\n"
        "print(sorted({'torch', 'vizdoom', 'ale_py', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_package_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point whose module is broken is an error of that name alone, with the reason."""
    broken = EntryPoint(name="theirs", value="not_there:SPEC", group=registry.SYSTEMS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [broken] if group == registry.SYSTEMS else [])
    with pytest.raises(ValueError, match=r"system theirs: cannot be imported: No module named 'not_there'"):
        registry.load_system("theirs", {})


def test_a_scenario_that_is_not_available_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario whose simulator is missing is listed, and refused with the command that installs it."""
    family = registry.load_family("pointnav")
    monkeypatch.setattr(type(family), "unavailable", lambda _: "it is missing; pip install it")
    with pytest.raises(ValueError, match=r"scenario pointnav is not available here: it is missing; pip install it"):
        registry.load_scenario("pointnav", "homogeneous", {})
