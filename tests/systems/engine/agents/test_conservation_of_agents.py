"""Every system, and ablations of them, on environments with several agents, with real workers.

Agents leave, come again, all leave, and may be away for whole rollouts. Each one's steps are logged by the environment
itself; what was learned is compared with that, to the sample.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from rlbench.harness.plan.system_list import CannotRun
from rlbench.systems.policies.policy import build_policy
from tests.harness.runs import PATIENCE_S, has_ended, wait_until
from tests.lanes import sampled
from tests.systems.actions import choices
from tests.systems.engine.agents.crowds import (
    COMES,
    NUM_AGENTS,
    NUM_ENVS,
    Way,
    cell_of,
    joint_path,
    record_crowd,
    registered,
)
from tests.systems.engine.batched import LAGS_MS, LOG, SPACE
from tests.systems.engine.cells import leave_cell, run_in_turn
from tests.systems.engine.doubles import Ran, all_ways, asked, log_path, mixes
from tests.systems.engine.ranks import start_ranks, words_for
from tests.systems.engine.recorded import Recorded
from tests.systems.engine.test_conservation_in_batches import (
    REFUSED,
    SYSTEMS,
    TOLERANCE,
    has_one_learner,
    logs_of,
    values_of,
)

NUM_ROWS = NUM_ENVS * NUM_AGENTS
OURS = tuple(system.replace("num_envs_per_worker=4", "num_envs_per_worker=6") for system in SYSTEMS)
WAYS: list[Way] = [(system, comes, num_ranks) for comes in COMES for system in OURS for num_ranks in (1, 2)]
EVERY = 5
SAMPLED = sampled([pytest.param(way, id="-".join(map(str, way))) for way in WAYS], EVERY)


def joint_steps_of(ran: Ran) -> list[int]:
    """Of each agent's environment where it is the first, as the environment counted them; else 0."""
    paths = [joint_path(ran.logs, number) for number in range(ran.num_ranks * ran.num_each)]
    return [path.stat().st_size if path.exists() else 0 for path in paths]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture(scope="module")
def ran_in(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Way], Ran]:
    """All ways that are asked for."""
    make = functools.partial(tmp_path_factory.mktemp, "ran")
    return all_ways(asked(request, "ran_in"), make, cell_of, record_crowd, NUM_ROWS, has_one_learner)


in_many_ways = pytest.mark.parametrize("way", SAMPLED)


@in_many_ways
def test_every_agent_step_is_learned_discarded_or_in_flight(ran_in: Callable[[Way], Ran], way: Way) -> None:
    """Agent steps that the environments logged = those of the meter = learned + discarded + in flight, of each agent.

    Steps of whole environments are counted beside them, once each.
    """
    ran = ran_in(way)
    logs, joint_steps = logs_of(ran), joint_steps_of(ran)
    counted = [len(log) for log in logs]
    assert ran.of_each("env_steps") == counted
    assert ran.of_each("joint_steps") == ran.of_each("frames") == joint_steps
    assert 0 < sum(joint_steps) < sum(counted) < NUM_AGENTS * sum(joint_steps)
    assert ran.of_each("episodes") == [int(log.ended.sum()) for log in logs]
    assert ran.count("discarded") == 0
    ran.check_fates()
    cuts = [fates.cut for rank in range(ran.num_learners) if (fates := ran.run.fates(rank))]
    assert cuts == [None] * len(cuts) or way[0].startswith("appo"), "of T places some may be without a step"


@in_many_ways
def test_samples_are_what_agents_did(ran_in: Callable[[Way], Ran], way: Way) -> None:
    """What is learned of an agent is what its environment logged of it, step by step, over all its stays."""
    ran = ran_in(way)
    for number, log in enumerate(logs_of(ran)):
        log.check(ran.samples(number))


@pytest.mark.parametrize("way", [way for way in SAMPLED if not mixes(*way.values)])
def test_truncated_stays_bootstrap_from_their_last_observation(ran_in: Callable[[Way], Ran], way: Way) -> None:
    """Its value is the policy's, with weights that the sampler had between the step and the learning from it."""
    ran = ran_in(way)
    policy = build_policy("small", SPACE, choices(4), seed=0)
    num_cut, others = 0, []
    for number, log in enumerate(logs_of(ran)):
        samples = ran.samples(number)
        rank = number // NUM_ROWS if ran.num_learners > 1 else 0
        cut = np.flatnonzero(samples["truncated"])
        if len(cut):
            chosen = {name: column[cut] for name, column in samples.items()}
            right, wrong = values_of(policy, ran.run.weights_by_version(rank), chosen, log.after[cut])
            num_cut += len(cut)
            np.testing.assert_array_less(right, TOLERANCE)
            others += wrong.tolist()
    assert num_cut > 3
    assert max(others) > 10 * TOLERANCE


@pytest.mark.parametrize("system", ["sync", "ddppo:preempt=optimal", "nover"])
def test_agents_may_be_away_for_whole_rollouts(system: str, tmp_path: Path) -> None:
    """With rollouts of one or two steps, many have no sample of most agents; each has one of every environment."""
    logs = tmp_path / "logs"
    logs.mkdir()
    steps = {"rollout_steps": 2 if system == "nover" else 1, "learn.num_minibatches": NUM_ENVS}
    cell = cell_of((system, COMES[0], 1), logs, 40, steps)
    run = Recorded(run_in_turn(tmp_path, {"short": cell}, 1, record_crowd)["short"].folder)
    ran = Ran(run=run, logs=logs, num_each=NUM_ROWS)
    counted = [len(log) for log in logs_of(ran)]
    rows = ran.run.rows(0)
    assert len(rows) == 40
    learned = [row["learned"] for row in rows]
    assert min(learned) >= NUM_ENVS
    assert sum(counted) == sum(learned) + ran.count("in_flight")
    samples = ran.run.samples()
    pairs = np.unique(np.stack((samples["env"], samples["learned_at"])), axis=1)
    assert pairs.shape[1] < 40 * NUM_ROWS, "each agent has samples in every rollout"
    if system == "sync":
        assert min(learned) < NUM_ROWS
        assert sum(joint_steps_of(ran)) == 40 * NUM_ENVS


def test_a_rank_that_lags_behind_is_cut(tmp_path: Path) -> None:
    """With a slow environment on rank 0 its rollouts are cut, but never before each environment has a sample."""
    (tmp_path / "logs").mkdir()
    cell = cell_of(("ddppo:preempt.p=0.4", COMES[0], 2), tmp_path / "logs", iterations=8, slow_ms=LAGS_MS)
    run = Recorded(run_in_turn(tmp_path, {"cut": cell}, 2, record_crowd)["cut"].folder)
    slow, fast = ([row["learned"] for row in run.rows(rank)] for rank in range(2))
    assert sum(slow) < sum(fast)
    assert min(slow) >= NUM_ENVS


@pytest.mark.parametrize("system", REFUSED)
def test_what_cannot_step_agents_together_says_so(system: str, tmp_path: Path) -> None:
    """In one line, before anything is started."""
    with pytest.raises(CannotRun, match="agents of an environment") as refused:
        cell_of((system, COMES[0], 1), tmp_path).load()
    assert "\n" not in str(refused.value)


def test_a_killed_worker_ends_the_run(tmp_path: Path) -> None:
    """The run says which worker was killed, and how; nothing that it has started goes on."""
    logs = tmp_path / "logs"
    logs.mkdir()
    run = leave_cell(tmp_path / "run", cell_of(("sync", COMES[1], 1), logs, iterations=1_000_000))
    (rank,) = start_ranks(words_for(record_crowd, run.folder), 1)
    first = NUM_ROWS - NUM_AGENTS
    try:
        last = joint_path(logs, first)
        wait_until(lambda: last.exists() and last.stat().st_size > 20, "the environments step")
        worker = psutil.Process(int(log_path(logs, first).with_suffix(".pid").read_text()))
        worker.send_signal(signal.SIGKILL)
        printed = rank.communicate(timeout=PATIENCE_S)[0].decode()
    finally:
        rank.close()
    assert rank.returncode == 1
    assert f"environment worker rank0-env{first} was killed by SIGKILL" in printed
    wait_until(lambda: has_ended(worker), "its environment has ended")
    assert all((logs / f"{number}.log").stat().st_size % LOG.itemsize == 0 for number in range(NUM_ROWS))
