from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.system import Context
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.meter import RankMeter
from rlbench.harness.plan.registry import load_scenario
from tests.systems.engine.ranks import Run, run_cell, same_weights

POINTNAV = ("pointnav", {"num_envs": "2", "rollout_steps": "16"})
EMULATED = ("emulated/open-fridge", {"num_envs": "2", "rollout_steps": "8", "time_scale": "0.01"})
WHOLE: dict[str, Any] = {"system": "ddppo", "system_settings": {"preempt.p": "1"}}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`sync` on one rank."""
    return run_cell(tmp_path_factory.mktemp("first"), "run", *POINTNAV)


def assert_equal(run: Run, other: Run, num_ranks: int = 1) -> None:
    """Equal to the bit: weights, counts and training statistics (the times are not)."""
    assert same_weights(run, other)
    for rank in range(num_ranks):
        statistics = run.statistics(rank)
        assert len(statistics) == 3
        assert {"loss", "entropy", "grad_norm", "learned", "collected"} <= statistics[0].keys()
        assert statistics == other.statistics(rank)


def test_one_seed_one_run(first: Run, tmp_path: Path) -> None:
    """Two runs of one seed on one rank are equal to the bit."""
    assert_equal(first, run_cell(tmp_path, "again", *POINTNAV))


def test_ddppo_that_never_preempts_is_sync(first: Run, tmp_path: Path) -> None:
    """`ddppo` with p = 1 equals `sync` on one rank to the bit."""
    assert_equal(first, run_cell(tmp_path, "ddppo", *POINTNAV, **WHOLE))


def test_ddppo_that_never_preempts_is_sync_on_two_ranks(tmp_path: Path) -> None:
    """`ddppo` with p = 1 equals `sync` on two ranks to the bit, on both ranks."""
    sync = run_cell(tmp_path, "sync", *POINTNAV, gpus=2)
    assert_equal(sync, run_cell(tmp_path, "ddppo", *POINTNAV, gpus=2, **WHOLE), num_ranks=2)


def test_another_seed_another_run(first: Run, tmp_path: Path) -> None:
    """Another seed gives other weights and other experience."""
    other = run_cell(tmp_path, "other", *POINTNAV, seed=1)
    assert not same_weights(first, other)
    assert [row["loss"] for row in first.rows(0)] != [row["loss"] for row in other.rows(0)]


def test_one_seed_one_emulated_run(tmp_path: Path) -> None:
    """Two runs of one seed on one emulated GPU are equal to the bit, although their times are not."""
    run, again = (run_cell(tmp_path, name, *EMULATED, device="emulated") for name in ("run", "again"))
    assert_equal(run, again)


def test_environments_have_seeds_of_their_own(tmp_path: Path) -> None:
    """All environments of a run have different seeds, which follow from the run's; another run has others."""
    seeds = {}
    for seed in (0, 1):
        for rank in range(8):
            folder = tmp_path / f"{seed}-{rank}"
            folder.mkdir()
            meter = RankMeter(folder, rank, num_envs=16)
            context = Context(
                place=Place(rank=rank, num_ranks=8, local_rank=rank),
                scenario=load_scenario(POINTNAV[0], "homogeneous", {"num_envs": "16"}),
                device=CpuDevice(8),
                seed=seed,
                budget=Limits(iterations=1),
                meter=meter,
                folder=str(folder),
                stall_s=60,
            )
            seeds[seed, rank] = [context.env_seed(index) for index in range(16)]
            assert seeds[seed, rank] == [context.env_seed(index) for index in range(16)]
            meter.close()
    assert len(set(itertools.chain.from_iterable(seeds.values()))) == 2 * 8 * 16
