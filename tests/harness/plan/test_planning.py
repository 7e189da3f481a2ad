from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.plan import registry
from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.planning import LARGEST_SEED, parse_gpus, parse_seeds, plan, plan_with_skipped
from rlbench.harness.plan.request import Request
from rlbench.harness.plan.system_list import split_list
from rlbench.scenarios.emulated.profile import read_profile

REQUEST = Request(
    systems="sync,ddppo",
    gpus="1",
    scenarios="emulated/open-fridge",
    workloads="homogeneous",
    seeds="0",
    device="emulated",
    oversubscribe=False,
    protocol="ddppo",
    limits=Limits(iterations=10),
    stall_s=60,
    time_limit_s=600,
)


def only(**changes: Any) -> Cell:
    """The one cell of a request."""
    (cell,) = plan(replace(REQUEST, **{"systems": "ddppo", **changes}))
    return cell


def test_cells_are_interleaved_over_systems() -> None:
    """Neighbouring cells differ in the system alone, so that a slow spell of the machine hits all systems."""
    cells = plan(replace(REQUEST, gpus="1,8", seeds="0,1", workloads="homogeneous,heterogeneous"))
    assert len(cells) == 16
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        assert (first.system, second.system) == ("sync", "ddppo")
        assert replace(first, system="ddppo") == second
    assert [(cell.seed, cell.workload, cell.gpus) for cell in cells[::2]] == [
        (seed, workload, gpus) for seed in (0, 1) for workload in ("homogeneous", "heterogeneous") for gpus in (1, 8)
    ]


def test_ranks_share_the_environments_of_strong_scaling() -> None:
    """Their total stays, however many ranks there are; cells say which scaling they are of, and so do their hashes."""
    request = replace(REQUEST, systems="sync", gpus="1,2,4", scenarios="emulated/open-fridge:num_envs=16")
    weak, strong = (plan(replace(request, scaling=scaling)) for scaling in ("weak", "strong"))
    assert [cell.load()[1].num_envs for cell in weak] == [16, 16, 16]
    assert [cell.load()[1].num_envs for cell in strong] == [16, 8, 4]
    assert [cell.label.split()[2:5] for cell in strong[1:2]] == [["homogeneous", "strong", "x2"]]
    assert not {cell.hash() for cell in weak} & {cell.hash() for cell in strong}
    assert [cell.configuration().get("scaling") for cell in (weak[1], strong[1])] == [None, "strong"]
    assert Cell.from_json(strong[1].to_json()) == strong[1]


def test_environments_that_cannot_be_shared() -> None:
    """Which numbers of GPUs share them evenly is said; too few for the mini-batches are refused as everywhere."""
    request = replace(REQUEST, systems="sync", scenarios="emulated/open-fridge:num_envs=12", scaling="strong")
    with pytest.raises(ValueError, match=re.escape("share evenly; use 1, 2, 3, 4, 6, 12 GPUs, or set num_envs")):
        plan(replace(request, gpus="8"))
    with pytest.raises(ValueError, match="num_envs=1 cannot fill"):
        plan(replace(request, gpus="12"))


def test_all_is_every_installed_system_in_alphabetical_order() -> None:
    """`all` names what the registry names, and may stand among others; what is asked for twice is planned once."""
    cells, skipped = plan_with_skipped(replace(REQUEST, systems="all,ddppo:preempt=never,sync"))
    left_out = {line.split()[1] for line in skipped}
    expected = [name for name in registry.names(registry.SYSTEMS) if name not in left_out]
    assert {"ddppo", "sync"} <= set(expected)
    assert [cell.label.split()[0] for cell in cells] == [*expected, "ddppo:preempt=never"]


def test_settings_of_all_are_set_on_each() -> None:
    """A setting behind `all` goes to every system."""
    cells = plan(replace(REQUEST, systems="all:learn.epochs=5"))
    assert {"ddppo", "sync"} <= {cell.system for cell in cells}
    assert all(cell.system_settings == {"learn.epochs": "5"} for cell in cells)


def test_systems_of_all_that_cannot_run_are_skipped_with_the_reason() -> None:
    """A line for each says why; a system that was named is refused instead."""
    request = replace(REQUEST, systems="all", scenarios="emulated/open-fridge:rollout_steps=2", gpus="1,2")
    cells, skipped = plan_with_skipped(request)
    assert "ddppo" not in {cell.system for cell in cells}
    assert "sync" in {cell.system for cell in cells}
    (line,) = (line for line in skipped if line.startswith("skipped ddppo"))
    assert line.startswith("skipped ddppo on emulated/open-fridge: preempt.least=0.25 of 2 steps is less than one step")
    with pytest.raises(ValueError, match=r"^ddppo on emulated/open-fridge: preempt"):
        plan(replace(request, systems="all,ddppo"))


def test_all_with_nothing_that_can_run_is_refused() -> None:
    """A sweep without a cell is none, and the first reason is said."""
    with pytest.raises(ValueError, match=r"^--systems all:learn.nope=1: none can run; skipped \w+ on emulated/"):
        plan(replace(REQUEST, systems="all:learn.nope=1"))


def test_learning_settings_that_change_nothing_make_no_other_cell() -> None:
    """What is set to the value that it has anyway, by default or by the scenario, does not count in the hash."""
    rate = only().load()[1].learn.learning_rate
    assert only(systems=f"ddppo:learn.epochs=2:learn.learning_rate={rate}").hash() == only().hash()
    assert only(systems="ddppo:learn.epochs=3").hash() != only().hash()
    in_scenario = "emulated/open-fridge:learn.epochs=3"
    assert only(systems="ddppo:learn.epochs=3", scenarios=in_scenario).hash() == only(scenarios=in_scenario).hash()
    assert only(systems="ddppo:learn.epochs=2", scenarios=in_scenario).hash() != only(scenarios=in_scenario).hash()


def test_duplicates_are_removed() -> None:
    """Cells that would do the same are planned once, however they were typed; the first spelling stays."""
    cells = plan(
        replace(
            REQUEST,
            systems="sync,ddppo:preempt.p=0.60,sync,ddppo,ddppo:preempt=threshold",
            scenarios="emulated,emulated/open-fridge,emulated/open-fridge:time_scale=1.0",
            gpus="2,1,1..2",
            seeds="0,0",
        )
    )
    assert [(cell.system, cell.system_settings, cell.scenario, cell.gpus) for cell in cells] == [
        ("sync", {}, "emulated", 1),
        ("ddppo", {"preempt.p": "0.60"}, "emulated", 1),
        ("sync", {}, "emulated", 2),
        ("ddppo", {"preempt.p": "0.60"}, "emulated", 2),
    ]


def test_hash_is_the_same_in_every_process() -> None:
    """The content hash does not depend on the process, nor on Python's own hash seed."""
    cell = only(systems="ddppo:preempt.p=0.8")
    program = "import sys; from rlbench.harness.plan.cells import Cell; print(Cell.from_json(sys.stdin.read()).hash())"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=cell.to_json(),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert hashes == {cell.hash()}


@pytest.mark.parametrize(
    "changes",
    [
        {"systems": "sync"},
        {"systems": "ddppo:preempt.p=0.8"},
        {"systems": "ddppo:preempt=never"},
        {"systems": "ddppo:learn.epochs=1"},
        {"systems": "ddppo:rollout.num_steps=64"},
        {"scenarios": "pointnav"},
        {"scenarios": "emulated/open-fridge:num_envs=8"},
        {"scenarios": "emulated/open-fridge:time_scale=0.5"},
        {"scenarios": "emulated/open-fridge:learn.learning_rate=1e-4"},
        {"workloads": "heterogeneous"},
        {"gpus": "2"},
        {"seeds": "1"},
        {"device": "cpu"},
        {"protocol": "steady"},
        {"limits": Limits(iterations=11)},
        {"limits": Limits(seconds=10)},
        {"limits": Limits(iterations=10, until="success>=0.9")},
    ],
)
def test_hash_differs_for_anything_that_changes_the_work(changes: dict[str, Any]) -> None:
    """Two cells that would do different work have different hashes."""
    assert only(**changes).hash() != only().hash()


@pytest.mark.parametrize(
    "changes",
    [
        {"systems": "ddppo:preempt.p=0.6"},
        {"systems": "ddppo:preempt.p=6e-1"},
        {"systems": "ddppo:preempt=threshold"},
        {"scenarios": "emulated"},
        {"scenarios": "emulated/open-fridge:num_envs=16"},
        {"time_limit_s": 7.0},
        {"stall_s": 7.0},
    ],
)
def test_hash_is_equal_for_equal_work(changes: dict[str, Any]) -> None:
    """Settings that are typed differently but mean the same, and limits that only guard, do not change the hash."""
    assert only(**changes).hash() == only().hash()


def test_cells_come_back_from_json() -> None:
    """What a rank reads from `cell.json` is what was planned."""
    cell = only(systems="ddppo:preempt.p=0.8", limits=Limits(until="spl>=0.5", seconds=2.5))
    assert Cell.from_json(cell.to_json()) == cell


def test_settings_are_typed_values() -> None:
    """A record's settings are numbers where the fields are, as JSON knows them; a scenario's say so by their prefix."""
    cell = only(
        systems="ddppo:preempt.p=0.80:preempt=threshold:learn.epochs=3:learn.normalize_advantages=rank",
        scenarios="emulated/open-fridge:num_envs=8:time_scale=0.5:learn.epochs=5",
    )
    assert json.loads(json.dumps(cell.settings())) == {
        "preempt.p": 0.8,
        "preempt": "threshold",
        "learn.epochs": 3,
        "learn.normalize_advantages": "rank",
        "scenario.num_envs": 8,
        "scenario.time_scale": 0.5,
        "scenario.learn.epochs": 5,
    }


def test_a_systems_learning_settings_come_before_the_scenarios() -> None:
    """A scenario says how all systems learn; what a system sets is what is learned with."""
    cell = only(systems="ddppo:learn.epochs=3", scenarios="emulated/open-fridge:learn.epochs=5:learn.clip=0.3")
    _, scenario = cell.load()
    assert (scenario.learn.epochs, scenario.learn.clip) == (3, 0.3)


def test_label_can_be_typed_again() -> None:
    """People read of a cell what they typed for it."""
    cell = only(systems="ddppo:preempt.p=0.80", scenarios="emulated:num_envs=8", gpus="4", seeds="3")
    assert cell.label == "ddppo:preempt.p=0.80 emulated:num_envs=8 homogeneous x4 seed 3"


def test_configuration_is_whole_and_plain() -> None:
    """The configuration of a cell is JSON and holds every setting, the profile's times among them."""
    configuration = json.loads(json.dumps(only().configuration()))
    assert configuration["system"]["preempt"] == {"kind": "Threshold", "p": 0.6, "least": 0.25}
    assert configuration["scenario"]["learn"]["num_minibatches"] == 2
    assert configuration["scenario"]["profile"]["step"] == read_profile("open-fridge").step.model_dump()
    assert configuration["limits"]["iterations"] == 10


def test_counts() -> None:
    """GPU counts come in ascending order, seeds as they were typed, both once each."""
    assert parse_gpus("8,1, 2..4,2") == [1, 2, 3, 4, 8]
    assert parse_seeds("3,0..2,3") == [3, 0, 1, 2]
    assert parse_seeds(str(LARGEST_SEED)) == [LARGEST_SEED]
    assert len(parse_seeds("0..99999")) == 100_000
    with pytest.raises(ValueError, match=r"--seeds .*: must be at most 100,000 numbers"):
        parse_seeds("0..49999,50000..100000")


def test_lists() -> None:
    """Spaces and empty parts of a list do not count."""
    assert split_list(" a, b,,c:d=e ,", "--systems") == ["a", "b", "c:d=e"]


def test_an_impossible_mix_is_refused_with_its_reason() -> None:
    """A preempted rank that would have nothing to learn is found while planning."""
    with pytest.raises(ValueError, match=r"preempt\.least=0\.001 of 128 steps is less than one step"):
        only(systems="ddppo:preempt.least=0.001")
