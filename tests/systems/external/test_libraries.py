from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from rlbench.harness.plan import libraries, registry
from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import complete
from rlbench.harness.plan.system_list import CannotRun
from rlbench.systems.external.library import LibrarySystem

ROOT = Path(__file__).resolve().parents[3]
OF_RESNET = ("habitat-ddppo", "habitat-ver")
"""They learn with `policy=resnet` alone."""
SYSTEMS = (*OF_RESNET, "rllib-appo", "rllib-impala", "sample-factory", "sb3-ppo", "torchrl-ppo")
RESNET = "vizdoom:policy=resnet"
WORK = ("torch", "vizdoom", "ale-py", "pydantic")
"""What is compared, and what a record of a cell is read with."""


def load(name: str) -> LibrarySystem:
    """A system that is made with a library."""
    return cast("LibrarySystem", registry.load_system(name, {}))


def planned(systems: str, scenario: str = "vizdoom", **options: str) -> Cell:
    """The cell of one system."""
    asked: dict[str, Any] = {"device": "cpu", **options}
    (cell,) = plan(complete(RunOptions(systems=systems, scenario=scenario, **asked))[0])
    return cell


def with_its_policy(name: str, scenario: str) -> str:
    """The scenario, with a network that the system has."""
    return f"{scenario.partition(':policy=')[0]}:policy=resnet" if name in OF_RESNET else scenario


def test_all_are_there() -> None:
    """The libraries of this package are entry points like anybody's, apart from what `all` stands for."""
    assert set(SYSTEMS) <= set(registry.names(registry.EXTERNAL))
    assert not set(registry.names(registry.EXTERNAL)) & set(registry.names(registry.SYSTEMS))


@pytest.mark.parametrize("name", SYSTEMS)
def test_requirements_are_exact(name: str) -> None:
    """Every line names one version, the library's own too; what does the work is what rlbench itself is tested with."""
    library = load(name).library
    lines = library.requirements.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert all(re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?==[\w.!]+", line) for line in lines[1:])
    found = libraries.pinned(library)
    assert len(found) == len(lines) - 1
    assert library.distribution in found
    assert found[library.distribution] in load(name).about
    tested_with = dict(libraries.PINNED.findall((ROOT / "constraints.txt").read_text()))
    assert {package: found[package] for package in WORK} == {package: tested_with[package] for package in WORK}


@pytest.mark.parametrize("scenario", ["vizdoom", "atari", "vizdoom:policy=nature", "atari:num_envs=4"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_cell_says_how_the_library_learns(name: str, scenario: str) -> None:
    """The record has the work, the library's own settings, its network, and in what it departs."""
    scenario = with_its_policy(name, scenario)
    configuration = planned(name, scenario).configuration()
    assert configuration["scenario"]["learn"]["learning_rate"] > 0
    assert configuration["scenario"]["policy"]
    departures = configuration["system"]["departures"]
    system = load(name)
    _, checked = planned(name, scenario).load()
    assert departures == {each.what: each.theirs for each in system.list_departures(checked) if each.matters}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize(
    ("scenario", "options", "why"),
    [
        ("vizdoom:policy=small", {}, "policy=small: has no such network; known: "),
        ("vizdoom:learn.schedule=linear", {}, "its adapter hands on no schedule and no weight decay"),
        ("vizdoom:learn.optimizer=sgd", {}, "learn.optimizer=sgd: learns with adam"),
        ("vizdoom:num_envs=8", {"gpus": "2"}, "--gpus 2: must be at most 1 here"),
        ("vizdoom", {"device": "emulated"}, "runs on what is there; use --device cpu or cuda"),
    ],
)
def test_what_it_cannot_do_is_said(name: str, scenario: str, options: dict[str, str], why: str) -> None:
    """Before anything runs, in one line."""
    scenario = scenario if "policy=" in scenario else with_its_policy(name, scenario)
    with pytest.raises(CannotRun, match=re.escape(why)):
        planned(name, scenario, **options)


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_it_cannot_see_is_said(name: str) -> None:
    """An adapter takes certain observations, and the networks that its library has."""
    named = ": its adapter takes pixels alone or depth and goal alone; use sync, ver, appo, gossip"
    seen = named if name in OF_RESNET else "it takes images of uint8; use sync, ver, appo, gossip"
    scenario = "emulated/open-fridge:policy=resnet" if name in OF_RESNET else "pointnav"
    with pytest.raises(CannotRun, match=seen):
        planned(name, scenario)
    other = "conv" if name in OF_RESNET else "resnet"
    with pytest.raises(CannotRun, match=f"policy={other}: has no such network; known: "):
        planned(name, f"vizdoom:policy={other}")


def test_habitat_baselines_sees_what_its_task_shows() -> None:
    """Depth and a goal too; in what it departs depends on how it learns."""
    departures = planned("habitat-ver", "pointnav:policy=resnet").configuration()["system"]["departures"]
    assert set(departures) == {"value after a truncated episode", "initialisation", "advantages"}
    scenario = "pointnav:policy=resnet:learn.normalize_advantages=none"
    assert "advantages" not in planned("habitat-ddppo", scenario).configuration()["system"]["departures"]
    assert planned("habitat-ver", scenario).configuration()["scenario"]["learn"]["correct"] == "truncated_is"


@pytest.mark.parametrize(
    ("systems", "scenario", "why"),
    [
        ("sample-factory:rollout.batch=100", "vizdoom", "rollout.batch=100: must be a multiple of rollout.num_steps"),
        ("sample-factory:num_workers=3", "vizdoom", "num_envs=8: must be a multiple of num_workers=3"),
        ("sample-factory:num_workers=8", "vizdoom", "each of 8 workers must have an even number"),
        ("sample-factory:learn.correct=truncated_is", "vizdoom", "learn.correct=truncated_is: known: none, vtrace"),
        ("sample-factory:learn.num_minibatches=128", "vizdoom", "mini-batches are of whole rollouts of 32 steps"),
        ("sb3-ppo:num_workers=2", "vizdoom", "each environment has a process, so there are 8"),
        ("sb3-ppo:rollout.batch=100", "vizdoom", "rollout.batch=100: must be a rollout of all environments, 512"),
        ("sb3-ppo:learn.num_minibatches=3", "vizdoom", "learn.num_minibatches=3: must divide the batch, 512 env steps"),
        ("habitat-ver:num_workers=2", RESNET, "each environment has a process, so there are 8"),
        ("habitat-ver:learn.correct=none", RESNET, "learn.correct=none: known: truncated_is"),
        ("habitat-ver:learn.rho=2", RESNET, "learn.rho=2: its weights are always truncated at 1"),
        ("habitat-ver:num_inference_workers=0", RESNET, "num_inference_workers=0: must be from 1 to 64"),
        ("habitat-ddppo:learn.correct=truncated_is", RESNET, "learn.correct=truncated_is: known: none"),
        ("habitat-ddppo:learn.num_minibatches=16", RESNET, "must divide num_envs=8; mini-batches are of whole"),
        ("torchrl-ppo:learn.num_minibatches=16", "vizdoom", "learn.num_minibatches=16: mini-batches are of whole"),
        ("torchrl-ppo:preemptive_threshold=0", "vizdoom", "preemptive_threshold=0: must be above 0 and at most 1"),
        ("torchrl-ppo:rollout.num_steps=-1", "vizdoom", "rollout.num_steps=-1: must be at least 0"),
        ("torchrl-ppo:num_workers=2000", "vizdoom", "num_workers=2000: must be from 0 to 1024"),
    ],
)
def test_settings_are_checked(systems: str, scenario: str, why: str) -> None:
    """What does not fit together is refused with the rule and the value."""
    with pytest.raises(CannotRun, match=re.escape(why)):
        planned(systems, scenario)


def test_workers_are_as_many_as_cores_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has as many environments as the others."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    _, scenario = planned("torchrl-ppo").load()
    assert load("torchrl-ppo").workers_of(scenario) == 4  # of 8 environments
    assert load("sb3-ppo").workers_of(scenario) == 8
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    assert load("torchrl-ppo").workers_of(scenario) == 8
    assert load("sample-factory").workers_of(scenario) == 4  # each has two groups
