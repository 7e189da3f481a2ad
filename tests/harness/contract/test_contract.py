from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import RANK_VARIABLES, Place, Seat
from rlbench.harness.contract.system import Context
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.counted import EPISODE, episodes_path
from rlbench.harness.metering.meter import RankMeter
from rlbench.harness.metering.meter_file import MeterFile
from rlbench.harness.plan.registry import load_scenario

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_a_rank_learns_its_place_from_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """RANK, WORLD_SIZE and LOCAL_RANK are all that says where a rank is."""
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert Place.from_environment() == Place(rank=5, num_ranks=8, local_rank=1)


@pytest.mark.parametrize("missing", RANK_VARIABLES)
def test_missing_variables_are_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that was not launched says which variable it lacks, and what sets it."""
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    with pytest.raises(ValueError, match=rf"^{missing}: not set; .*torchrun$"):
        Place.from_environment()


def test_environments_are_numbered_over_all_ranks() -> None:
    """The global index counts through the ranks, so that no two environments of a run share it."""
    seats = [
        Seat(
            place=Place(rank=rank, num_ranks=3, local_rank=0), index=index, num_envs=4, seed=0, device=CpuDevice(1)
        ).global_index
        for rank in range(3)
        for index in range(4)
    ]
    assert seats == list(range(12))


def context_of(folder: Path, rank: int, seed: int = 0) -> Context:
    """What a system gets on one rank of two."""
    scenario = load_scenario("emulated", "homogeneous", {"num_envs": "3", "time_scale": "1e-6"})
    return Context(
        place=Place(rank=rank, num_ranks=2, local_rank=rank),
        scenario=scenario,
        device=CpuDevice(2),
        seed=seed,
        budget=Limits(iterations=1),
        meter=RankMeter(folder, rank, scenario.num_envs),
        folder=str(folder),
        stall_s=60,
    )


def test_seeds_of_environments_differ_and_stay(tmp_path: Path) -> None:
    """Every environment of a run has a seed of its own; the same run has the same ones, another seed has others."""
    contexts = [context_of(tmp_path, rank, seed) for seed in (0, 1) for rank in (0, 1)]
    seeds = [context.env_seed(index) for context in contexts for index in range(3)]
    assert len(set(seeds)) == 12
    assert seeds == [context.env_seed(index) for context in contexts for index in range(3)]
    for context in contexts:
        context.meter.close()


def test_make_env_makes_counted_environments(tmp_path: Path) -> None:
    """An environment that a system gets from its context counts its steps and episodes for the harness."""
    context = context_of(tmp_path, rank=1)
    env = context.make_env(2)
    env.reset()
    ends = 0
    for _ in range(1000):
        *_, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            ends += 1
            env.reset()
    env.close()
    context.meter.close()
    meter = MeterFile(context.meter.path, writable=False)
    assert meter.count(3, "env_steps") == meter.total("env_steps") == 1000
    assert meter.count(3, "episodes") == ends > 0
    data = episodes_path(tmp_path, 1).read_bytes()
    assert [record[0] for record in EPISODE.iter_unpack(data)] == [5] * ends


def test_the_contract_is_short() -> None:
    """What somebody must read to add a system or a scenario fits in 200 lines, beside what these files import."""
    contract = Path(__file__).parents[3] / "harness" / "contract"
    texts = [(contract / f"{name}.py").read_text(encoding="utf-8") for name in ("system", "scenario", "device")]
    lines = [line for text in texts for line in text.splitlines()]
    assert len([line for line in lines if not re.match(r"\s*(from|import) ", line)]) <= 200
