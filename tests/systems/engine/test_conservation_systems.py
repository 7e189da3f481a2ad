"""Every system, and ablations of them, with real workers on 1 to 3 ranks: env steps are conserved to the sample.

The ranks of one device are started once and run all systems in turn, each in a folder and a process group of its own,
with workers of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import rank
from harness.contract import Place
from harness.launch.local import free_port
from harness.plan import Cell
from tests.systems.engine.cells import make_cell, profile
from tests.systems.engine.ranks import Run, run_ranks

NUM_ENVS, NUM_STEPS, NUM_ITERATIONS = 4, 16, 5
STREAM = "rollout.num_steps=8:rollout.batch=32"
SYSTEMS = (
    f"impala:{STREAM}",  # first, so that all workers are forked from a server that has torch already
    f"impala:{STREAM}:overlap=alternate",
    f"appo:{STREAM}",
    f"appo:{STREAM}:average=allreduce",
    f"appo:{STREAM}:average.placement=together",
    "sync",
    "ddppo",
    "ddppo:preempt=optimal",
    "nover",
    "nover:preempt.fill_stale=true",
    "ver",
    "ver:preempt=threshold",
    "ver:preempt=never",
    "ver:overlap=oneahead",
    "ver:average=gossip",
    "htsrl",
    "htsrl:rollout=variable",
    "gossip",
    "gossip:average.mode=push",
    "easgd",
    "downpour",
)
DEVICES = (("cpu", 1), ("emulated", 2), ("emulated", 3))
CELLS_FILE = "cells.json"


def folder_of(system: str) -> str:
    """The folder of a system's run."""
    return f"run{SYSTEMS.index(system)}"


def run_all(folder: Path) -> None:
    """Runs this rank of every cell, one after the other."""
    place = Place.from_environment()
    for name, port in json.loads((folder / CELLS_FILE).read_text()):
        os.environ["MASTER_PORT"] = str(port)
        rank.run(folder / name, place)


@dataclass(frozen=True, slots=True)
class Ran:
    """What all systems left on one device."""

    folder: Path
    device: str
    num_ranks: int

    def __str__(self) -> str:
        return f"{self.device}-{self.num_ranks}"

    def of(self, system: str) -> Run:
        """The run of a system."""
        return Run(self.folder / folder_of(system))

    def count(self, system: str, name: str) -> int:
        """A counter of all ranks, `env_steps` of all environments."""
        run = self.of(system)
        meters = [run.meter(number) for number in range(self.num_ranks)]
        return sum(meter.total(name) if name == "env_steps" else meter.count(0, name) for meter in meters)

    def rows(self, system: str) -> list[dict[str, Any]]:
        """The time series of all ranks that learn."""
        run = self.of(system)
        return [row for number in range(self.num_ranks) for row in run.rows(number) if row["learned"]]


@pytest.fixture(scope="module", params=DEVICES, ids=lambda param: f"{param[0]}-{param[1]}")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """All systems on one device; environments and ranks differ in speed, so that stragglers are cut."""
    device, num_ranks = request.param
    folder = tmp_path_factory.mktemp("ran")
    scenario = profile(folder, spread=1.0, step_ms=4.0)
    cells = []
    for system in SYSTEMS:
        cell = make_cell(
            system, scenario, iterations=NUM_ITERATIONS, device=device, gpus=num_ranks, workload="heterogeneous"
        )
        cell.load()
        run = folder / folder_of(system)
        run.mkdir()
        (run / "cell.json").write_text(cell.to_json())
        cells.append((run.name, free_port()))
    (folder / CELLS_FILE).write_text(json.dumps(cells))
    run_ranks(run_all, num_ranks, folder)
    yield Ran(folder, device, num_ranks)


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_step_is_learned_discarded_or_in_flight(ran: Ran, system: str) -> None:
    """Env steps counted in the wrappers = learned + discarded + in flight, to the sample."""
    accounted = [ran.count(system, name) for name in ("learned", "discarded", "in_flight")]
    assert ran.count(system, "env_steps") == sum(accounted)
    assert min(ran.count(system, name) for name in ("learned", "env_steps")) > 0
    assert ran.count(system, "discarded") == 0  # nothing is slow enough
