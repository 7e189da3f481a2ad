from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.plan import registry
from rlbench.systems.spaces.actions import ActionLayout
from rlbench.systems.spaces.observations import leaves_of
from tests.harness.command import assert_refused, call
from tests.harness.hostile.misbehaving_plugin.raises import make_error


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
    assert ActionLayout.of(scenario.action_space).size >= 1
    assert leaves_of(scenario.observation_space)
    assert scenario.gpu_costs.learn_item_s > 0
    assert isinstance(scenario.preload, tuple)


def test_loading_by_name_imports_only_what_was_asked_for() -> None:
    """Entry points are loaded lazily: one scenario's simulator is not imported for another."""
    program = (
        "import sys; from rlbench.harness.plan import registry; registry.load_scenario('emulated', 'homogeneous', {})\n"
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


RAISES = {
    "SystemExit-plain": "SystemExit: no wall behind the wall",
    "BrokenPipeError-surrogate": r"BrokenPipeError: half \udcff of a pair",
    "GeneratorExit-blank": "GeneratorExit: not on the first line",
    "StrExits-odd": "StrExits: <its text raises SystemExit>",
}


@pytest.mark.parametrize("case", RAISES)
@pytest.mark.parametrize("call_of_family", ["unavailable", "make"])
def test_whatever_a_scenario_family_raises_is_a_line(
    monkeypatch: pytest.MonkeyPatch, case: str, call_of_family: str
) -> None:
    """Where cells are planned: the scenario and the exception are named, and the exit code is that of a wrong use."""
    family = registry.load_family("pointnav")

    def misbehave(*_: object) -> None:
        raise make_error(*case.split("-"))

    monkeypatch.setattr(type(family), call_of_family, misbehave)
    ended = call("run", "--systems", "sync", "--scenario", "pointnav", "--device", "cpu", "--dry-run")
    assert (ended.code, ended.err) == (2, f"rlbench: scenario pointnav raised {RAISES[case]}\n")


@pytest.mark.parametrize("case", RAISES)
def test_whatever_a_property_of_a_scenario_raises_is_a_line(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Also what is asked for only where a cell is checked."""

    def misbehave(*_: object) -> None:
        raise make_error(*case.split("-"))

    scenario = registry.load_scenario("pointnav", "homogeneous", {})
    monkeypatch.setattr(type(scenario), "__getattribute__", misbehave)
    ended = call("run", "--systems", "sync", "--scenario", "pointnav", "--device", "cpu", "--dry-run")
    assert ended.code == 2
    assert RAISES[case] in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("attribute", ["num_envs", "learn", "policy", "shm_bytes"])
@pytest.mark.parametrize("value", [LookupError("no wall"), SystemExit("bye"), "12", None, [1]], ids=repr)
@pytest.mark.parametrize("dry_run", [["--dry-run"], []], ids=["dry-run", "run"])
def test_an_odd_attribute_of_a_scenario_is_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, attribute: str, value: Any, dry_run: list[str]
) -> None:
    """One that raises, or is of a wrong type, ends the plan of a run before anything is made."""
    scenario = registry.load_scenario("pointnav", "homogeneous", {})
    known = type(scenario).__getattribute__

    def get(self: object, name: str) -> Any:
        if name == attribute and isinstance(value, BaseException):
            raise value
        return value if name == attribute else known(self, name)

    monkeypatch.setattr(type(scenario), "__getattribute__", get)
    options = ("--systems", "sync", "--scenario", "pointnav", "--device", "cpu", "--out", str(tmp_path / "out"))
    assert_refused(call("run", *options, *dry_run), "pointnav")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", RAISES)
def test_whatever_a_module_raises_when_it_is_imported_is_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    """Of a system, and of a scenario."""
    module = f"odd_{case.replace('-', '_')}"
    source = "from tests.harness.hostile.misbehaving_plugin.raises import make_error\nraise make_error"
    (tmp_path / f"{module}.py").write_text(f"{source}(*{case.split('-')!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = EntryPoint(name="theirs", value=f"{module}:SPEC", group=registry.SYSTEMS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [broken] if group == registry.SYSTEMS else [])
    with pytest.raises(ValueError, match="system theirs: cannot be imported: ") as told:
        registry.load_system("theirs", {})
    assert str(told.value).endswith(RAISES[case])
