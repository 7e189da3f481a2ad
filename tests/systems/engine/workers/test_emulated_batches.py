"""Systems on emulated environments in batches, with real workers on 2 emulated GPUs: env steps are conserved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.systems.engine.cells import make_cell, profile, run_in_turn
from tests.systems.engine.ranks import Run

STREAM = "rollout.num_steps=8:rollout.batch=32"
SYSTEMS = (f"appo:{STREAM}", "sync", "ddppo:preempt.p=0.4", "nover:preempt.fill_stale=true", "ver", "htsrl", "gossip")
NUM_RANKS = 2
BATCH = """
[batch]
sizes = [2, 4]
step_ms = [1.0, 2.0]
sigma = 0.5
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Run]:
    """Of all systems, one after the other: 4 environments in 2 batches, of scenes that differ by far."""
    folder = tmp_path_factory.mktemp("ran")
    scenario = profile(folder, spread=1.0, episode_steps=6.0)
    path = Path(scenario.removeprefix("emulated/"))
    path.write_text(path.read_text() + BATCH)
    fields = {"device": "emulated", "gpus": NUM_RANKS, "workload": "heterogeneous"}
    cells = {system: make_cell(system, f"{scenario}:envs_per_batch=2", iterations=4, **fields) for system in SYSTEMS}
    return run_in_turn(folder, cells, NUM_RANKS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_step_is_learned_discarded_or_in_flight(runs: Mapping[str, Run], system: str) -> None:
    """Env steps counted where the batches are stepped = learned + discarded + in flight, of each environment.

    Both environments of a batch have as many, and episodes of their own.
    """
    run, meters = runs[system], [runs[system].meter(rank) for rank in range(NUM_RANKS)]
    counted = np.array([[meter.count(1 + env, "env_steps") for env in range(4)] for meter in meters])
    assert counted.min() > 0
    assert np.array_equal(counted[:, ::2], counted[:, 1::2])
    accounted = {name: sum(meter.count(0, name) for meter in meters) for name in ("learned", "discarded", "in_flight")}
    assert counted.sum() == sum(accounted.values())
    found = [fates for rank in range(NUM_RANKS) if (fates := run.fates(rank))]
    of_envs = np.concatenate([[*fates.totals, fates.in_flight] for fates in found], axis=1)
    assert of_envs.sum(0).tolist() == counted.ravel().tolist()
    episodes = np.array([[meter.count(1 + env, "episodes") for env in range(4)] for meter in meters])
    assert episodes.min() > 0
    assert not np.array_equal(episodes[:, ::2], episodes[:, 1::2])
