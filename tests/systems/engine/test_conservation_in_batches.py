"""Every system, and ablations of them, on environments that are stepped in batches of each kind, with real workers.

Each environment logs what it did itself, in whichever process; what was learned is compared with that, to the sample.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pytest
import torch

from rlbench.harness.plan.system_list import CannotRun
from rlbench.systems.policies.policy import Policy, build_policy
from tests.harness.runs import PATIENCE_S, has_ended, wait_until
from tests.lanes import sampled
from tests.systems.actions import choices
from tests.systems.engine.batched import (
    KINDS,
    LAGS_MS,
    LOG,
    MODES,
    NUM_ENVS,
    PER_BATCH,
    SPACE,
    Log,
    Way,
    cell_of,
    record_batched,
    registered,
)
from tests.systems.engine.cells import leave_cell, run_in_turn
from tests.systems.engine.doubles import Ran, all_ways, asked, log_path, mixes
from tests.systems.engine.ranks import start_ranks, words_for
from tests.systems.engine.recorded import Recorded

STREAM = "rollout.num_steps=4:rollout.batch=32"
SYSTEMS = (
    f"appo:{STREAM}",  # these are on two ranks in both lanes
    "ddppo:preempt.p=0.4",
    "ddppo:preempt=optimal",
    "nover:preempt.fill_stale=true",
    "ver",
    "ver:preempt=threshold:preempt.p=0.4",
    "ver:average=gossip",
    "easgd:average.seconds=60",
    "downpour:average.seconds=60",
    f"appo:{STREAM}:average=allreduce",  # and these on one
    f"appo:{STREAM}:collect=dynamic",
    f"appo:{STREAM}:collect.num_envs_per_worker=4",
    "sync",
    "nover",
    "ver:overlap=oneahead",
    "htsrl",
    "htsrl:rollout=variable",
    "gossip",
)
REFUSED = (
    "impala",
    "appo:collect=actorside",
    "appo:overlap=alternate",
    "appo:overlap=oneahead",
    "sync:rollout=trajectories",
)


def has_one_learner(system: str) -> bool:
    """Whether rank 0 learns from the environments of all ranks."""
    return system.startswith("appo") and "allreduce" not in system


WAYS: list[Way] = [
    (system, kind, mode.value, num_ranks)
    for mode in MODES
    for kind in KINDS
    for system in SYSTEMS
    for num_ranks in (1, 2)
]
EVERY = 17
"""One way in so many is in both lanes: each system once, in different modes and kinds."""
SAMPLED = sampled([pytest.param(way, id="-".join(map(str, way))) for way in WAYS], EVERY)
TOLERANCE = 1e-4


def logs_of(ran: Ran) -> list[Log]:
    """What each environment logged, [E]."""
    return [Log.read(ran.logs, number) for number in range(ran.num_ranks * ran.num_each)]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture(scope="module")
def ran_in(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Way], Ran]:
    """All ways that are asked for."""
    make = functools.partial(tmp_path_factory.mktemp, "ran")
    return all_ways(asked(request, "ran_in"), make, cell_of, record_batched, NUM_ENVS, has_one_learner)


in_many_ways = pytest.mark.parametrize("way", SAMPLED)


@in_many_ways
def test_every_step_is_learned_discarded_or_in_flight(ran_in: Callable[[Way], Ran], way: Way) -> None:
    """Env steps that the environments counted themselves = those of the meter = learned + discarded + in flight.

    So it is for each environment by itself. Steps that only reset an environment are none.
    """
    ran = ran_in(way)
    logs = logs_of(ran)
    counted = [len(log) for log in logs]
    assert min(counted) > 0
    assert ran.of_each("env_steps") == counted
    assert ran.of_each("frames") == counted
    assert ran.of_each("episodes") == [int(log.ended.sum()) for log in logs]
    assert ran.count("discarded") == 0
    ran.check_fates()
    cuts = [fates.cut for rank in range(ran.num_learners) if (fates := ran.run.fates(rank))]
    assert cuts == [None] * len(cuts) or way[0].startswith("appo"), "of T steps some may be resets"


@in_many_ways
def test_samples_are_what_their_environments_did(ran_in: Callable[[Way], Ran], way: Way) -> None:
    """What is learned of an environment is what it logged, step by step; no step that only reset it is among it."""
    ran = ran_in(way)
    for number, log in enumerate(logs_of(ran)):
        samples = ran.samples(number)
        assert len(samples["reward"])
        log.check(samples)


@pytest.mark.parametrize("way", [way for way in SAMPLED if not mixes(*way.values)])
def test_truncated_episodes_bootstrap_from_their_last_observation(ran_in: Callable[[Way], Ran], way: Way) -> None:
    """Its value is the policy's, with weights that the sampler had between the step and the learning from it."""
    ran = ran_in(way)
    policy = build_policy("small", SPACE, choices(4), seed=0)
    num_cut, others = 0, []
    for number, log in enumerate(logs_of(ran)):
        samples = ran.samples(number)
        rank = number // NUM_ENVS if ran.num_learners > 1 else 0
        cut = np.flatnonzero(samples["truncated"])
        chosen = {name: column[cut] for name, column in samples.items()}
        right, wrong = values_of(policy, ran.run.weights_by_version(rank), chosen, log.after[cut])
        num_cut += len(cut)
        np.testing.assert_array_less(right, TOLERANCE)
        others += wrong.tolist()
    assert num_cut > 5
    assert max(others) > 10 * TOLERANCE


def values_of(
    policy: Policy, weights: list[dict[str, Any]], samples: dict[str, Any], final: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """How far the values of K samples are from those of the `final` observations [K, 4], and of those before, [K]."""
    right, wrong = (np.full(len(final), np.inf, np.float32) for _ in range(2))
    off = torch.zeros(len(final), dtype=torch.bool)
    columns = {name: torch.from_numpy(column) for name, column in samples.items()}
    before = {"where": columns["obs/where"]}
    for version in np.unique(samples["version"]):
        policy.load_state_dict(weights[version])
        with torch.no_grad():
            _, states = policy._step(before, *(columns[name] for name in ("prev_action", "episode_start", "state")))
        of_version = samples["version"] == version
        for later in range(version, samples["learned_at"][of_version].max() + 1):
            policy.load_state_dict(weights[later])
            known = of_version & (later <= samples["learned_at"])
            for off_by, obs in ((right, torch.from_numpy(final)), (wrong, before["where"])):
                value = policy.value({"where": obs}, columns["action"], off, states).numpy()
                off_by[known] = np.minimum(off_by, np.abs(value - samples["bootstrap"]))[known]
    return right, wrong


@pytest.mark.parametrize("mode", [mode.value for mode in MODES])
def test_a_rank_that_lags_behind_is_cut(mode: str, tmp_path: Path) -> None:
    """With a slow batch on rank 0 its rollouts are cut: at least once in some, and never before each has a sample."""
    (tmp_path / "logs").mkdir()
    cell = cell_of(("ddppo:preempt.p=0.4", "native", mode, 2), tmp_path / "logs", iterations=8, slow_ms=LAGS_MS)
    run = Recorded(run_in_turn(tmp_path, {"cut": cell}, 2, record_batched)["cut"].folder)
    slow, fast = ([row["learned"] for row in run.rows(rank)] for rank in range(2))
    assert sum(slow) < sum(fast)
    assert min(slow) >= NUM_ENVS


@pytest.mark.parametrize("system", REFUSED)
def test_what_cannot_step_batches_says_so(system: str, tmp_path: Path) -> None:
    """In one line that says what to do instead, before anything is started."""
    with pytest.raises(CannotRun, match="use vector=none") as refused:
        cell_of((system, "native", MODES[0].value, 1), tmp_path).load()
    assert "\n" not in str(refused.value)
    cell_of((system, "alone", MODES[0].value, 1), tmp_path).load()


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_worker_ends_the_run(kind: str, tmp_path: Path) -> None:
    """The run says which worker was killed, and how; nothing that it has started goes on."""
    logs = tmp_path / "logs"
    logs.mkdir()
    run = leave_cell(tmp_path / "run", cell_of(("sync", kind, MODES[0].value, 1), logs, iterations=1_000_000))
    (rank,) = start_ranks(words_for(record_batched, run.folder), 1)
    try:
        last = log_path(logs, NUM_ENVS - 1)
        wait_until(lambda: last.exists() and last.stat().st_size > 20 * LOG.itemsize, "the environments step")
        steps_it = psutil.Process(int(last.with_suffix(".pid").read_text()))
        worker = steps_it.parent() if kind == "async" else steps_it
        assert worker is not None
        worker.send_signal(signal.SIGKILL)
        printed = rank.communicate(timeout=PATIENCE_S)[0].decode()
    finally:
        rank.close()
    assert rank.returncode == 1
    assert f"environment worker rank0-env{NUM_ENVS - PER_BATCH} was killed by SIGKILL" in printed
    wait_until(lambda: has_ended(steps_it), "its environments have ended")
