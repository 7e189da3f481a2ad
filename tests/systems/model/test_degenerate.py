from __future__ import annotations

from statistics import fmean

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.scenario import WORKLOADS
from tests.systems.model.profiles import BUSY, Changes
from tests.systems.model.runs import ends_of, predicted, scenario_of

TIMES = ("begin_s", "end_s", "learned", "reused", "gpu_busy_s", "span/infer", "span/simulate", "span/learn")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_ver_with_one_environment_is_sync_with_one(workload: str) -> None:
    """A single environment is acted for as soon as it waits, in lockstep or not, and fills the rollout alone."""
    scenario = scenario_of(workload=workload, num_envs=1, rollout_steps=64)
    one_batch = "learn.num_minibatches=1"
    ver, sync = (predicted(f"{system}:{one_batch}", scenario=scenario) for system in ("ver", "sync"))
    for ours, theirs in zip(ver.rows, sync.rows, strict=True):
        assert {name: ours[name] for name in TIMES} == {name: theirs[name] for name in TIMES}
    assert (ver.of_envs["step_s"] == sync.of_envs["step_s"]).all()


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_ddppo_that_waits_for_all_is_sync(num_ranks: int) -> None:
    """With p = 1 nobody is cut: to the bit what `sync` does."""
    scenario = scenario_of(workload="heterogeneous")
    whole, sync = (predicted(system, num_ranks, scenario=scenario) for system in ("ddppo:preempt.p=1.0", "sync"))
    assert whole.rows == sync.rows
    assert predicted("ddppo:preempt.p=0.3", 5, scenario=scenario).rows != predicted("sync", 5, scenario=scenario).rows


@pytest.mark.parametrize("average", ["gossip", "elastic", "parameterserver", "allreduce"])
def test_one_rank_has_nobody_to_agree_with(average: str) -> None:
    """On one rank gossip, a server and an all-reduce cost nothing, and do the same."""
    base = "collect=dynamic:learn.num_minibatches=2"
    alone = predicted(f"sync:{base}:average={average}")
    assert ends_of(alone) == ends_of(predicted(f"sync:{base}"))
    assert sum(row["span/communicate"] for row in alone.rows) == 0


def with_link(seconds: float, **network: float) -> Changes:
    """A profile in which the weights need so long to pass a link."""
    quiet = {"synchronize_ms": 0.0, "synchronize_doubling_ms": 0.0, "latency_ms": 0.0}
    link = {"weights_mb": 1000.0 * seconds, "bandwidth_mb_per_s": 1000.0}
    return BUSY | {"network": quiet | link | network}


def test_a_saturated_server_slows_ranks_in_proportion() -> None:
    """Downpour on links so slow that the server's never rests: an update of R ranks takes R - 1 messages' time.

    Rank 0 asks itself, and is as fast as ever.
    """
    link_s, updates, limits = 5.0, 4, Limits(seconds=600.0)
    for num_ranks in (3, 5, 9):
        prediction = predicted("downpour", num_ranks, scenario=scenario_of(with_link(link_s)), limits=limits)
        ends = ends_of(prediction, num_ranks - 1)[:-1]  # the last of all have the link for themselves
        took = (ends[-1] - ends[0]) / (len(ends) - 1)
        assert took == pytest.approx(updates * (num_ranks - 1) * link_s, rel=1e-6)
        assert len(ends_of(prediction, 0)) > 20 * len(ends)


def test_gossip_spreads_what_a_server_gathers() -> None:
    """With as slow links, ranks that gossip wait far less than those of a server: every rank's link serves."""
    scenario = scenario_of(with_link(2.0))
    gossip, server = (
        predicted(f"sync:average={average}", 8, scenario=scenario, limits=Limits(seconds=200))
        for average in ("gossip", "parameterserver")
    )
    means = [
        fmean(row["span/communicate"] for row in one.rows if row["rank"] > 0 and row["iteration"] > 0)
        for one in (gossip, server)
    ]
    assert means[0] < means[1] / 2


def test_ranks_that_do_not_wait_for_each_other_have_iterations_of_their_own() -> None:
    """Gossiping ranks of environments that differ do not end iterations together, and none waits for a straggler."""
    prediction = predicted("gossip", 4, scenario=scenario_of(workload="heterogeneous"), limits=Limits(seconds=10.0))
    assert len({len(ends_of(prediction, rank)) for rank in range(4)}) > 1
    assert all(row["span/wait:straggler"] == 0 for row in prediction.rows)
    in_step = predicted("sync", 4, scenario=scenario_of(workload="heterogeneous"))
    assert len({tuple(ends_of(in_step, rank)) for rank in range(4)}) == 1


def test_messages_hide_behind_learning() -> None:
    """An all-reduce that takes less than a mini-batch costs nothing; what is longer than that is waited for."""
    learn_s = 3e-3 + 64 / 2 * 1e-3
    quiet = ends_of(predicted("sync", 2, scenario=scenario_of(with_link(0.0))))
    hidden = ends_of(predicted("sync", 2, scenario=scenario_of(with_link(0.9 * learn_s))))
    longer = ends_of(predicted("sync", 2, scenario=scenario_of(with_link(1.5 * learn_s))))
    assert hidden == pytest.approx(quiet)
    waited = [4 * 0.5 * learn_s * (iteration + 1) for iteration in range(len(quiet))]
    assert [late - end for late, end in zip(longer, quiet, strict=True)] == pytest.approx(waited)


def test_appo_is_capped_by_its_learner() -> None:
    """A learner that needs longer for a batch than the environments of many GPUs learns at its own pace."""
    slow_learner = BUSY | {"gpu": {"prepare_ms": 0.0, "learn_item_ms": 20.0}}
    rates = []
    for num_ranks in (4, 8):
        prediction = predicted("appo", num_ranks, scenario=scenario_of(slow_learner))
        rows = [row for row in prediction.rows if row["rank"] == 0][1:]
        rates.append(sum(row["learned"] for row in rows) / sum(row["end_s"] - row["begin_s"] for row in rows))
        assert sum(row["span/wait:rollout"] for row in rows) < 1e-6
    assert rates[0] == pytest.approx(rates[1], rel=0.1)
    assert rates[1] < 1 / 20e-3


def test_newer_samples_are_learned_where_the_lag_is_bounded() -> None:
    """The mean lag falls with the bound, and no sample is older than it says."""
    means = {}
    for max_lag in (2, 20):
        prediction = predicted(f"appo:overlap.max_lag={max_lag}:rollout.batch=128", 2)
        assert prediction.of_ranks["lag_max"].max() <= max_lag
        means[max_lag] = prediction.of_ranks["lag_sum"].sum() / prediction.of_ranks["learned"].sum()
    assert means[2] < means[20]


@pytest.mark.parametrize("env_steps", range(500, 1500, 100))
def test_no_rank_knows_what_others_have_yet_to_learn(env_steps: int) -> None:
    """Ranks that are not in step end with the first iteration that ends when all have told of enough env steps."""
    quiet = with_link(0.0) | {"gpu": {"prepare_ms": 10.0, "learn_item_ms": 20.0}}
    scenario = scenario_of(quiet, workload="heterogeneous")
    prediction = predicted("gossip", 4, scenario=scenario, limits=Limits(env_steps=env_steps))
    learned, over_s = 0, 0.0
    for row in sorted(prediction.rows, key=lambda row: row["end_s"]):
        learned += row["learned"]
        if learned >= env_steps:
            over_s = row["end_s"]
            break
    for rank in range(4):
        *others, last = ends_of(prediction, rank)
        assert last >= over_s
        assert all(end < over_s for end in others)
