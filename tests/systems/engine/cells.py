"""Cells, emulated profiles, and ranks that run several cells in turn; imports no torch."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Place
from rlbench.harness.launch import rank
from rlbench.harness.plan.cells import Cell
from tests.systems.engine import ranks
from tests.systems.engine.ranks import LIMIT_S, Run, join_group, run_ranks

if TYPE_CHECKING:
    from rlbench.systems.engine.rank.means import Means

CELLS_FILE = "cells.json"
CELLS_PER_LIMIT = 5
"""So many may take the time of one launch."""

PROFILE = """
about = "times of a test"
[collect]
num_envs = 4
rollout_steps = 16
[step]
median_ms = {step_ms}
sigma = 0.2
[collision]
median_ms = {step_ms}
share = 0.0
mean_stay_steps = 1.0
[episode]
mean_steps = {episode_steps}
sigma = 0.1
reset_ms = 0.0
[heterogeneous]
sigma = {spread}
[cpu]
cores_per_gpu = 0
actor_infer_ms = 0.0
[gpu]
render_ms = {render_ms}
infer_fixed_ms = {infer_ms}
infer_item_ms = 0.0
prepare_ms = {prepare_ms}
learn_item_ms = 0.0
render_while_learning_factor = 1.0
learn_while_rendering_factor = 1.0
[network]
synchronize_ms = 0.0
synchronize_doubling_ms = 0.0
latency_ms = 0.0
bandwidth_mb_per_s = 10000.0
weights_mb = 0.0
"""
TIMES: dict[str, float] = {
    "step_ms": 1.0,
    "episode_steps": 30.0,
    "spread": 0.0,
    "render_ms": 0.1,
    "infer_ms": 0.1,
    "prepare_ms": 1.0,
}


def profile(folder: Path, name: str = "profile", **times: float) -> str:
    """Writes an emulated profile; returns the scenario that it is. `times` replace some of `TIMES`."""
    path = folder / f"{name}.toml"
    path.write_text(PROFILE.format(**(TIMES | times)))
    return f"emulated/{path}"


def make_cell(system: str, scenario: str, *, iterations: int, **fields: Any) -> Cell:
    """A cell; `system` as on the command line, `name:key=value:...`, and so is `scenario`."""
    system, *of_system = system.split(":")
    scenario, *of_scenario = scenario.split(":")
    defaults: dict[str, Any] = {
        "workload": "homogeneous",
        "gpus": 1,
        "seed": 0,
        "device": "cpu",
        "protocol": "steady",
        "stall_s": 60.0,
        "time_limit_s": LIMIT_S,
    }
    return Cell(
        system=system,
        system_settings=dict(text.split("=", 1) for text in of_system),
        scenario=scenario,
        scenario_settings=dict(text.split("=", 1) for text in of_scenario),
        limits=Limits(iterations=iterations),
        **(defaults | fields),
    )


def leave_cell(folder: Path, cell: Cell) -> Run:
    """Makes a run's folder, with the cell in it."""
    cell.load()
    folder.mkdir()
    (folder / "cell.json").write_text(cell.to_json())
    return Run(folder)


def run_here(folder: Path, means: Means | None = None) -> None:
    """Runs this rank of the cell in `folder`, on one thread; with those means, or as a run does.

    Threads that wait for each other within a tiny inference make it slow by far where others use the cores too.
    """
    with patch.object(os, "sched_getaffinity", return_value={0}):
        if means is None:
            rank.run(folder, Place.from_environment())
        else:
            run_with(means, folder, Place.from_environment())


def run_with(means: Means, folder: Path, place: Place) -> None:
    """Does what `harness.launch.rank.run` does, for a system of the engine with other means."""
    from rlbench.systems.engine.rank.rank_loop import run_rank
    from rlbench.systems.spec import EngineSystem

    system, context = rank.open_context(folder, place)
    assert isinstance(system, EngineSystem)
    with context.meter.span("other"):
        run_rank(system, context, means)
    context.meter.close()


def run_in_turn(
    folder: Path,
    cells: Mapping[str, Cell],
    num_ranks: int,
    function: Callable[[Path], None] = run_here,
    per_machine: Mapping[str, int] | None = None,
) -> dict[str, Run]:
    """Starts ranks that run all cells one after the other, each in a process group and with workers of its own.

    Args:
        folder: gets the folders of the runs.
        cells: by a name.
        num_ranks: of every cell.
        function: what runs a rank's part of a cell, whose folder it is given.
        per_machine: of a cell: ranks are told that so many of them are on each machine; all on one where it has none.
    """
    local = per_machine or {}
    runs = {name: leave_cell(folder / f"run{number}", cell) for number, (name, cell) in enumerate(cells.items())}
    listed = [(str(run.folder), local.get(name, num_ranks)) for name, run in runs.items()]
    what = {"module": function.__module__, "function": function.__name__, "cells": listed}
    (folder / CELLS_FILE).write_text(json.dumps(what))
    with patch.object(ranks, "LIMIT_S", LIMIT_S * -(-len(cells) // CELLS_PER_LIMIT)):
        run_ranks(run_listed, num_ranks, folder, len(cells))
    return runs


def run_listed(folder: Path) -> None:
    """What each rank of `run_in_turn` does."""
    from torch import distributed

    what = json.loads((folder / CELLS_FILE).read_text())
    function = getattr(importlib.import_module(what["module"]), what["function"])
    for number, (name, per_machine) in enumerate(what["cells"]):
        join_group(number, per_machine)
        function(Path(name))
        if distributed.is_initialized():  # ranks that may lose one another leave it to the end of their process
            distributed.destroy_process_group()
