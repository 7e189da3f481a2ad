"""A sampler, and the collectors that use it, on environments that step in batches; they are no processes."""

from __future__ import annotations

import numpy as np
import pytest

from rlbench.systems.choices.collect import Collector, DoubleBuffered, Dynamic, Lockstep
from rlbench.systems.engine.rollouts.rollout import FixedRollout, Rollout, VariableRollout
from tests.systems.engine.rollouts.test_sampler import NUM_ENVS, Bench

PER_BATCH, NUM_STEPS = 2, 8
COLLECTORS: list[Collector] = [
    Lockstep(),
    Dynamic(),
    Dynamic(min_batch=3, max_batch=4),
    Dynamic(min_batch=6),
    Dynamic(max_batch=2),
]


def bench_for(collector: Collector, kind: str, seed: int) -> Bench:
    """With a rollout of that kind."""
    rollout: Rollout = FixedRollout(NUM_ENVS, NUM_STEPS)
    if kind == "variable":
        rollout = VariableRollout(NUM_ENVS, NUM_STEPS * NUM_ENVS)
    num = collector.envs_per_worker(NUM_ENVS, 2, PER_BATCH)
    return Bench(rollout, seed=seed, envs_per_worker=num, envs_per_batch=PER_BATCH)


@pytest.mark.parametrize("kind", ["fixed", "variable"])
@pytest.mark.parametrize("collector", COLLECTORS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_every_collector_fills_every_rollout(collector: Collector, kind: str, seed: int) -> None:
    """Whole batches act, in inferences within the bounds; what only began an episode is no sample."""
    bench = bench_for(collector, kind, seed)
    num_samples = 0
    for number in range(10):
        bench.workers.wakes = number % 2
        bench.sampler.begin()
        collector.collect(bench.sampler)
        assert bench.rollout.is_full
        steps = bench.rollout.take().tolist()
        num_samples += len(steps)
        bench.rollout.release(slot for _, slot in steps)
        if kind == "variable":
            assert len(steps) == NUM_STEPS * NUM_ENVS
        else:
            assert {env for env, _ in steps} == set(range(NUM_ENVS))
            assert bench.sampler.num_in_flight == 0
    bench.sampler.drain()
    num_acted = sum(map(len, bench.policy.batches))
    assert num_acted == num_samples + bench.rollout.num_samples + bench.workers.num_begun
    assert bench.workers.num_begun > 10
    if isinstance(collector, Dynamic) and collector.max_batch:
        assert max(map(len, bench.policy.batches)) <= collector.max_batch


@pytest.mark.parametrize("kind", ["fixed", "variable"])
@pytest.mark.parametrize("collector", COLLECTORS, ids=repr)
def test_every_collector_honours_preemption(collector: Collector, kind: str) -> None:
    """When the other ranks wait, no action is chosen any more, and the next rollout goes on."""
    bench = bench_for(collector, kind, seed=0)
    bench.stop_at(20)
    for _ in range(5):
        collector.collect(bench.sampler)
        assert 20 <= bench.rollout.num_samples <= 19 + NUM_ENVS
        num_inferences = len(bench.policy.batches)
        collector.collect(bench.sampler)
        assert len(bench.policy.batches) == num_inferences
        bench.rollout.release(slot for _, slot in bench.rollout.take().tolist())


def test_lockstep_steps_all_together() -> None:
    """One inference for all batches, then one step of all, of which some only begin episodes."""
    bench = bench_for(Lockstep(), "fixed", seed=0)
    Lockstep().collect(bench.sampler)
    assert [len(batch) for batch in bench.policy.batches] == [NUM_ENVS] * NUM_STEPS


def test_a_batch_acts_when_all_of_it_may() -> None:
    """Where a rollout lets one environment of a batch act and holds the other back, neither does."""
    bench = bench_for(Lockstep(), "fixed", seed=0)
    assert isinstance(bench.rollout, FixedRollout)
    bench.rollout.taken[3] = NUM_STEPS
    assert bench.sampler.ready.tolist() == [0, 1, 4, 5]


@pytest.mark.parametrize("envs_per_worker", [4, 8])
def test_double_buffering_acts_for_two_batches_in_turn(envs_per_worker: int) -> None:
    """Each inference is for groups as they are, half of a worker's environments: whole batches; both get turns."""
    collector = DoubleBuffered(num_envs_per_worker=envs_per_worker)
    assert collector.envs_per_worker(8, 1, PER_BATCH) == envs_per_worker
    groups = np.arange(8).reshape(-1, envs_per_worker // 2)
    rollout = VariableRollout(8, 240)
    bench = Bench(rollout, envs_per_worker=envs_per_worker, envs_per_batch=PER_BATCH)
    seen: list[list[int]] = []
    act = bench.sampler.act

    def note(envs: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        seen.append(sorted(envs.tolist()))
        act(envs)

    vars(bench.sampler)["act"] = note
    collector.collect(bench.sampler)
    assert rollout.is_full
    assert all(np.isin(groups, envs).all(1).sum() * len(groups[0]) == len(envs) for envs in seen)
    assert all(group in seen for group in groups.tolist())


@pytest.mark.parametrize(("num_envs", "num_cores", "found"), [(16, 1, 16), (16, 2, 8), (16, 99, 4), (12, 3, 4)])
def test_workers_have_batches_for_two_groups(num_envs: int, num_cores: int, found: int) -> None:
    """At most as many workers as cores, each with an even number of batches; or as many environments as is set."""
    assert DoubleBuffered().envs_per_worker(num_envs, num_cores, PER_BATCH) == found
    assert DoubleBuffered(num_envs_per_worker=4).envs_per_worker(num_envs, num_cores, PER_BATCH) == 4
    assert Dynamic().envs_per_worker(num_envs, num_cores, PER_BATCH) == PER_BATCH
