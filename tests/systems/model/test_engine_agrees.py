from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.predicting.planning import predict_cell
from tests.lanes import deep, sampled
from tests.systems.model.agreement import cell_of, hold
from tests.systems.model.mixes import COVERED, name_of
from tests.systems.model.profiles import A_CORE_EACH, BUSY, RESETTING, WITHOUT_GPU, Changes

SMALL_BATCH = "rollout.num_steps=8:rollout.batch=64"
SYSTEMS = (
    "sync",
    "ddppo",
    "nover:learn.num_minibatches=1",
    "ver",
    "htsrl",
    "gossip",
    "easgd",
    "downpour",
    f"appo:{SMALL_BATCH}",
    f"impala:{SMALL_BATCH}",
)
"""In mini-batches of `nover` the environments of a cut rollout are dealt at random, and the model takes their mean."""
PROFILES = {"busy": BUSY, "resetting": RESETTING}
FLEETS = ((1, "homogeneous"), (2, "heterogeneous"))


@pytest.mark.parametrize(
    ("system", "num_ranks", "workload", "profile"),
    [
        pytest.param(system, *fleet, profile, id=f"{system}-{fleet[0]}-{name}", marks=[deep] * (number % 4 != turn))
        for number, system in enumerate(SYSTEMS)
        for turn, (fleet, (name, profile)) in enumerate(itertools.product(FLEETS, PROFILES.items()))
    ],
)
def test_systems_do_what_the_engine_does(
    system: str, num_ranks: int, workload: str, profile: Changes, tmp_path: Path
) -> None:
    """Each system: every moment, span and counter of every rank and environment is that of the engine's own code.

    In the normal lane one of the four runs of each, in turn.
    """
    hold(tmp_path, cell_of(tmp_path, system, profile, num_ranks=num_ranks, workload=workload))


@pytest.mark.parametrize(
    "mix", sampled([pytest.param(mix, id=":".join(mix)) for mix in COVERED[::3]], every=5, first=1)
)
def test_mixes_do_what_the_engine_does(mix: tuple[str, ...], tmp_path: Path) -> None:
    """A third of all mixes of choices that the model covers, on three ranks that differ."""
    hold(tmp_path, cell_of(tmp_path, name_of(mix), BUSY, num_ranks=3, workload="heterogeneous", seed=1))


@pytest.mark.parametrize(
    ("system", "profile"),
    sampled(
        [
            pytest.param(system, profile, id=f"{system}-{name}")
            for name, profile in (("few", WITHOUT_GPU), ("enough", A_CORE_EACH))
            for system in ("ver", "sync", "gossip", f"appo:{SMALL_BATCH}", "htsrl", f"impala:{SMALL_BATCH}")
        ],
        every=3,
    ),
)
def test_ranks_without_a_gpu_hold_cores_as_in_the_engine(system: str, profile: Changes, tmp_path: Path) -> None:
    """Where inference and learning take cores from the environments, who waits for a core waits as long."""
    hold(tmp_path, cell_of(tmp_path, system, profile, num_ranks=2, workload="heterogeneous"))


@pytest.mark.parametrize("num_ranks", [1, 4, 8])
@pytest.mark.parametrize("system", ["sync", "htsrl", f"appo:{SMALL_BATCH}"])
def test_lags_are_the_engines_on_many_ranks(system: str, num_ranks: int, tmp_path: Path) -> None:
    """The sums of lags that `test_lag_formulas.py` holds to formulas are those of the engine, also on 8 ranks."""
    prediction = hold(tmp_path, cell_of(tmp_path, system, BUSY, num_ranks=num_ranks))
    lags = [row["lag_sum"] for row in prediction.rows]
    assert any(lags) == (system != "sync")


def test_cores_that_nobody_waits_for_are_not_booked(tmp_path: Path) -> None:
    """With a core for everybody, it does not matter how many there are."""
    few, many = (
        predict_cell(
            cell_of(tmp_path, "ver", WITHOUT_GPU | {"cpu": {"cores_per_gpu": cores, "learn_cores": 2}}, num_ranks=2)
        )
        for cores in (6, 60)
    )
    assert pd.DataFrame(few.rows).equals(pd.DataFrame(many.rows))


STREAM = "sync:collect=dynamic:rollout=trajectories:overlap=continuous"


SETTINGS = (
    ("ddppo:preempt.p=0.3:preempt.least=0.5", 4),
    ("ver:collect.max_batch=1", 2),
    ("nover:collect.min_batch=2:collect.max_batch=2:learn.num_minibatches=1", 2),
    ("ver:learn.epochs=1:learn.num_minibatches=3", 3),
    ("sync:learn.num_minibatches=3", 2),
    ("ver:learn.normalize_advantages=all", 3),
    ("gossip:average.interval=3", 3),
    ("gossip:average.mode=push:average.order=stale", 3),
    (f"{STREAM}:average=gossip:average.order=stale", 2),
    (f"{STREAM}:average=central:average.placement=together", 3),
    (f"{STREAM}:average=central:collect=doublebuffered:collect.num_envs_per_worker=4", 2),
    (f"{STREAM}:collect.min_batch=2:collect.max_batch=2", 2),
)


@pytest.mark.parametrize(
    ("system", "num_ranks", "profile"),
    [
        pytest.param(*setting, profile, id=f"{setting[0]}-{name}", marks=[deep] * (number % 2 != turn))
        for number, setting in enumerate(SETTINGS)
        for turn, (name, profile) in enumerate(PROFILES.items())
    ],
)
def test_settings_do_what_they_do_in_the_engine(system: str, num_ranks: int, profile: Changes, tmp_path: Path) -> None:
    """Settings of the choices: thresholds, bounds of batches, intervals, placements, epochs, mini-batches."""
    hold(tmp_path, cell_of(tmp_path, system, profile, num_ranks=num_ranks, workload="heterogeneous", seed=3))


@pytest.mark.parametrize("collect", ["dynamic", pytest.param("actorside", marks=deep)])
def test_samples_that_are_too_old_are_discarded_as_in_the_engine(collect: str, tmp_path: Path) -> None:
    """Streams whose samples may not be old: as many are discarded, of the same trajectories."""
    settings = f"collect={collect}:overlap.max_lag=1:rollout.num_steps=3:rollout.batch=40"
    once = "learn.epochs=1:learn.num_minibatches=1"
    cell = cell_of(tmp_path, f"{STREAM}:{settings}:{once}", BUSY, num_ranks=2, workload="heterogeneous", seed=3)
    prediction = hold(tmp_path, cell)
    assert prediction.of_ranks["discarded"].sum() > 0
    assert prediction.of_ranks["lag_max"].max() == 1


def test_actors_play_no_more_than_a_command_holds(tmp_path: Path) -> None:
    """A trajectory that is longer than the engine's longest command is played in two, the second with newer weights."""
    profile = BUSY | {"collect": {"num_envs": 1, "rollout_steps": 1030}}
    cell = cell_of(tmp_path, f"{STREAM}:collect=actorside", profile, num_ranks=1, limits=Limits(iterations=2))
    prediction = hold(tmp_path, cell)
    assert prediction.of_ranks["lag_sum"] % 1030 != 0, "not all steps of a trajectory have one lag"


@pytest.mark.parametrize(
    ("limits", "system"),
    [
        pytest.param(Limits(seconds=2.5), "ver", marks=deep),
        (Limits(seconds=2.5), "gossip"),
        (Limits(env_steps=500), "ver"),
        pytest.param(Limits(env_steps=500), "gossip", marks=deep),
    ],
    ids=["seconds-ver", "seconds-gossip", "env_steps-ver", "env_steps-gossip"],
)
def test_runs_end_where_the_engine_ends_them(system: str, limits: Limits, tmp_path: Path) -> None:
    """Limits of seconds and of env steps: each rank has as many iterations, in step or not."""
    prediction = hold(tmp_path, cell_of(tmp_path, system, BUSY, num_ranks=3, workload="heterogeneous", limits=limits))
    assert len(prediction.rows) > 6


@deep
def test_more_environments_of_a_shipped_profile(tmp_path: Path) -> None:
    """`open-fridge` as it is shipped, one rank: 16 environments, 128 steps, two iterations of `ver`."""
    hold(tmp_path, cell_of(tmp_path, "ver", {}, num_ranks=1, limits=Limits(iterations=2)))
