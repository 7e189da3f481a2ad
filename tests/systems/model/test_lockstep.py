from __future__ import annotations

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.scenarios.emulated import EmulatedScenario
from rlbench.systems.choices.preempt import Threshold
from tests.systems.model.paper import write_down
from tests.systems.model.profiles import Changes
from tests.systems.model.runs import ends_of, load, predicted, scenario_of

NUM_ITERATIONS = 5
SHORTER: Changes = {"collect": {"num_envs": 16, "rollout_steps": 64}}


def resetting(reset_ms: float) -> Changes:
    """`open-fridge`, with half of its steps, and shorter episodes."""
    return SHORTER | {"episode": {"reset_ms": reset_ms, "mean_steps": 50.0}}


def assert_as_on_paper(system: str, scenario: EmulatedScenario, num_ranks: int) -> int:
    """Asserts that iterations are as long, and rollouts and waits too; returns how many rollouts were cut."""
    preempt = load(system).preempt
    preempt = preempt if isinstance(preempt, Threshold) else Threshold(p=1.0)
    limits = Limits(iterations=NUM_ITERATIONS)
    prediction = predicted(system, num_ranks, scenario=scenario, seed=3, limits=limits)
    written = write_down(
        scenario, num_ranks=num_ranks, seed=3, p=preempt.p, least=preempt.least, num_iterations=NUM_ITERATIONS
    )
    for rank in range(num_ranks):
        rows = [row for row in prediction.rows if row["rank"] == rank]
        assert [row["end_s"] - row["begin_s"] for row in rows] == pytest.approx([one.seconds for one in written])
        assert [row["learned"] for row in rows] == [one.taken[rank] * scenario.num_envs for one in written]
        assert [row["span/wait:straggler"] for row in rows] == pytest.approx(
            [one.waited_s[rank] for one in written], abs=1e-9
        )
    return sum(steps < scenario.rollout_steps for one in written for steps in one.taken)


@pytest.mark.parametrize("reset_ms", [0.0, 250.0])
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_sync_is_what_is_on_paper(num_ranks: int, workload: str, reset_ms: float) -> None:
    """Every iteration of `sync` takes what adding up the profile's times gives, for every rank."""
    assert assert_as_on_paper("sync", scenario_of(resetting(reset_ms), workload), num_ranks) == 0


@pytest.mark.parametrize("reset_ms", [0.0, 250.0])
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(("num_ranks", "p"), [(1, 0.3), (2, 0.3), (2, 0.6), (4, 0.3), (4, 0.6), (4, 1.0)])
def test_ddppo_is_what_is_on_paper(num_ranks: int, p: float, workload: str, reset_ms: float) -> None:
    """`ddppo` cuts the same rollouts at the same steps, and its iterations take as long."""
    num_cut = assert_as_on_paper(f"ddppo:preempt.p={p}", scenario_of(resetting(reset_ms), workload), num_ranks)
    may_cut = int(p * num_ranks) + 1 < num_ranks
    assert (num_cut > 0) == may_cut


def test_learning_goes_at_the_pace_of_the_slowest_rank() -> None:
    """With slow links every update waits for its all-reduce, which nothing hides any more."""
    fast, slow = (
        scenario_of(SHORTER | {"network": {"bandwidth_mb_per_s": bandwidth, "weights_mb": 20.0, "latency_ms": 0.0}})
        for bandwidth in (1e9, 20.0)
    )
    assert_as_on_paper("ddppo:preempt.p=0.3", slow, 4)
    ends = [ends_of(predicted("sync", 4, scenario=one))[1] for one in (slow, fast)]
    all_reduce_s, learn_s = 2 * 3 / 4, fast.gpu_costs.learn_item_s * 64 * 16 / 2
    assert ends[0] - ends[1] == pytest.approx(2 * 4 * (all_reduce_s - learn_s))


def test_what_a_worker_does_beside_its_step_takes_as_long_as_a_step() -> None:
    """On a core, but it is no part of the step's time."""
    even: Changes = {"collision": {"share": 0.0}, "episode": {"sigma": 0.0}}
    cells: tuple[Changes, ...] = (
        {"step": {"median_ms": 6.0, "sigma": 0.0}, "cpu": {"cores_per_gpu": 5}},
        {"step": {"median_ms": 4.0, "sigma": 0.0}, "cpu": {"cores_per_gpu": 5, "answer_ms": 2.0}},
    )
    slow, answering = (
        predicted("sync", 2, scenario=scenario_of(SHORTER | even | times), limits=Limits(iterations=2))
        for times in cells
    )
    ends = [[row["end_s"] for row in prediction.rows] for prediction in (slow, answering)]
    assert ends[0] == pytest.approx(ends[1])
    num_steps = slow.of_envs["env_steps"]
    assert slow.of_envs["step_s"] - answering.of_envs["step_s"] == pytest.approx(0.002 * num_steps)
