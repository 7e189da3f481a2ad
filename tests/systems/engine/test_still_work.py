"""Still work: every system has its environments do the same, and learns nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from rlbench.harness.metering.still import marks_path, read_marks
from tests.systems.engine.cells import make_cell, profile, run_in_turn
from tests.systems.engine.ranks import Run

STREAM = "rollout.num_steps=8:rollout.batch=32"
SYSTEMS = (
    f"appo:{STREAM}",
    f"impala:{STREAM}",
    "sync",
    "ddppo",
    "nover:preempt.fill_stale=true",
    "ver",
    "gossip",
    "htsrl",
    "easgd:average.interval=2",
    "downpour:average.interval=2",
)
NUM_ENVS, NUM_RANKS, NUM_ITERATIONS = 4, 2, 4


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Run]:
    """All systems, and one that learns, on an emulated profile whose environments differ."""
    folder = tmp_path_factory.mktemp("still")
    scenario = profile(folder, spread=1.0, episode_steps=10.0)
    fields = {"device": "emulated", "gpus": NUM_RANKS, "workload": "heterogeneous", "protocol": "still"}
    cells = {system: make_cell(system, scenario, iterations=NUM_ITERATIONS, **fields) for system in SYSTEMS}
    cells["learns"] = make_cell("sync", scenario, iterations=NUM_ITERATIONS, **fields | {"protocol": "steady"})
    return run_in_turn(folder, cells, NUM_RANKS)


def marks_of(run: Run) -> list[list[int]]:
    """The marks of each environment, of all ranks."""
    found = [(rank, *mark) for rank in range(NUM_RANKS) for mark in read_marks(marks_path(run.folder, rank))]
    places = [(rank, env) for rank in range(NUM_RANKS) for env in range(NUM_ENVS)]
    return [[word for rank, env, _, word in found if (rank, env) == place] for place in places]


def weights_of(run: Run) -> torch.Tensor:
    """The policy that the run ended with."""
    return torch.cat([value.flatten().double() for value in torch.load(run.folder / "policy.pt").values()])


@pytest.mark.parametrize("system", SYSTEMS)
def test_all_systems_do_the_same_work(ran: Mapping[str, Run], system: str) -> None:
    """As `sync` does, as far as both came."""
    for mine, theirs in zip(marks_of(ran[system]), marks_of(ran["sync"]), strict=True):
        common = min(len(mine), len(theirs))
        assert common >= 5
        assert mine[:common] == theirs[:common]


@pytest.mark.parametrize("system", SYSTEMS)
def test_nothing_is_learned(ran: Mapping[str, Run], system: str) -> None:
    """Weights stay as they were, though the optimiser has stepped; other protocols change them."""
    assert torch.equal(weights_of(ran[system]), weights_of(ran["sync"]))
    assert not torch.equal(weights_of(ran["learns"]), weights_of(ran["sync"]))
    assert not any(marks_of(ran["learns"]))
