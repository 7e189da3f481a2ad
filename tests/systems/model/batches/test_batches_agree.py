"""Environments in batches: the model, for which a batch is one environment, against the engine's code for batches."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.plan.system_list import CannotRun
from rlbench.harness.predicting.planning import check_predictable
from rlbench.harness.predicting.points import Length, Planned, RatePoint
from tests.lanes import sampled
from tests.systems.model.agreement import cell_of, hold
from tests.systems.model.profiles import BATCHES_WITHOUT_GPU, IN_BATCHES, Changes, write_profile

STREAM = "sync:collect=dynamic:rollout=trajectories:overlap=continuous"
WHOLE = "rollout.num_steps=8:rollout.batch=96"
"""Whole trajectories of whole batches, of one rank or of three."""
SYSTEMS = (
    "sync",
    "ddppo",
    "ddppo:preempt=optimal",
    "nover:learn.num_minibatches=1",
    "nover:preempt.fill_stale=true:learn.num_minibatches=1",
    "ver",
    "ver:preempt=threshold:preempt.p=0.3",
    "htsrl",
    "htsrl:rollout=variable",
    "gossip",
    "easgd",
    "downpour",
    f"appo:{WHOLE}",
    f"appo:{WHOLE}:collect.num_envs_per_worker=12",
    f"{STREAM}:{WHOLE}:average=central",
    "ver:collect.min_batch=4:collect.max_batch=6",
    "ver:collect.max_batch=3",
    "ver:learn.epochs=1:learn.num_minibatches=5",
    "sync:collect=doublebuffered",
)
PROFILES = {"busy": IN_BATCHES, "without": BATCHES_WITHOUT_GPU}
FLEETS = ((1, "homogeneous"), (3, "heterogeneous"))


@pytest.mark.parametrize(
    ("system", "num_ranks", "workload", "profile"),
    sampled(
        [
            pytest.param(system, *fleet, profile, id=f"{system}-{fleet[0]}-{name}")
            for name, profile in PROFILES.items()
            for fleet in FLEETS
            for system in SYSTEMS
        ],
        every=3,
    ),
)
def test_batches_do_what_the_engine_does(
    system: str, num_ranks: int, workload: str, profile: Changes, tmp_path: Path
) -> None:
    """Every moment, span, counter and fate, of every rank and environment, is that of the engine's own code."""
    cell = cell_of(tmp_path, system, profile, num_ranks=num_ranks, workload=workload, seed=2)
    prediction = hold(tmp_path, cell)
    of_envs = np.concatenate([[*fates.totals, fates.in_flight] for fates in prediction.fates], axis=1)
    assert (of_envs.sum(0) == prediction.of_envs["env_steps"].ravel()).all()


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (
            "appo:rollout.batch=50",
            "rollout.batch=50: the model learns from whole batches of environments; use a multiple of 3",
        ),
        (
            "impala",
            "the policy acts in the workers, for single environments: use vector=none (of emulated environments",
        ),
    ],
)
def test_what_is_not_of_whole_batches_is_refused(system: str, expected: str, tmp_path: Path) -> None:
    """In one line that says what to do."""
    with pytest.raises(CannotRun, match=re.escape(expected)) as refused:
        check_predictable(cell_of(tmp_path, system, IN_BATCHES, num_ranks=1))
    assert "\n" not in str(refused.value)


def test_batches_that_nothing_holds_up_step_as_fast_as_their_calls(tmp_path: Path) -> None:
    """Env steps/s of the environments alone: environments of a call / its mean time, on each core."""
    scenario = write_profile(tmp_path, "alone", IN_BATCHES)
    found = Planned([point := RatePoint(system=None, scenario=scenario)], Length(num_seeds=lambda _: 1)).rates()[point]
    call_s, num_cores = 9.5e-3, 3
    assert found == pytest.approx(3 * num_cores / call_s, rel=0.03)
