"""A sampler, and the collectors that use it, on workers and a policy that are no processes and no network."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import numpy.typing as npt
import pytest

from rlbench.systems.choices.collect import (
    MOST_PLAYED,
    ActorSide,
    Collector,
    DoubleBuffered,
    Dynamic,
    Lockstep,
    group_of,
)
from rlbench.systems.engine.rollouts.monitors import NeverMonitor
from rlbench.systems.engine.rollouts.rollout import FixedRollout, Rollout, VariableRollout
from rlbench.systems.engine.rollouts.sampler import Sampler
from rlbench.systems.engine.rollouts.trajectories import QuotaRollout
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from tests.systems.actions import choices
from tests.systems.engine.counting import SPACE

NUM_ENVS = 6
Indices = npt.NDArray[np.int64]


class Workers:
    """Answer in random order, some at a time; or, for a sampler that has them play, after as many steps as asked.

    Environments of a batch answer together; an answer of one may be that it only began an episode.
    """

    def __init__(self, seed: int, envs_per_worker: int = 1, envs_per_batch: int = 1, num_envs: int = NUM_ENVS) -> None:
        self.parts = [(num_envs, envs_per_worker)]
        self.envs_per_batch = envs_per_batch
        self.flying: dict[int, int] = {}
        self.wakes = 0
        self.counts = np.zeros(0, np.bool_)
        """The column of the table."""
        self.num_begun = 0
        self._due = np.zeros(num_envs, np.bool_)
        self._rng = np.random.default_rng(seed)

    def send(self, envs: Indices, slots: Indices, nexts: Indices) -> None:
        """Actions to apply."""
        assert self.flying.keys().isdisjoint(envs.tolist())
        self.flying.update(zip(envs.tolist(), nexts.tolist(), strict=True))
        if self.envs_per_batch > 1:
            assert (envs.reshape(-1, self.envs_per_batch) % self.envs_per_batch == self._of_batch).all(), "not whole"
            self.counts[slots] = ~self._due[envs]
            self.num_begun += int(self._due[envs].sum())
            self._due[envs] = ~self._due[envs] & (self._rng.random(len(envs)) < 0.3)

    @property
    def _of_batch(self) -> Indices:
        return np.arange(self.envs_per_batch)

    def play(self, env: int, slots: Indices) -> None:
        """Steps to take."""
        assert env not in self.flying
        assert 1 <= len(slots) - 1 <= MOST_PLAYED
        self.flying[env] = len(slots) - 1

    def receive(self, least: int) -> tuple[Indices, Indices]:
        """At least so many answers, unless they were woken."""
        if self.wakes:
            self.wakes -= 1
            return np.empty(0, np.int64), np.empty(0, np.int64)
        assert least <= len(self.flying), "it would block for ever"
        num = int(self._rng.integers(-(-least // self.envs_per_batch), len(self.flying) // self.envs_per_batch + 1))
        batches = np.array(sorted(self.flying), np.int64).reshape(-1, self.envs_per_batch)
        envs = self._rng.permutation(batches)[:num].ravel()
        return envs, np.array([self.flying.pop(int(env)) for env in envs], np.int64)


class Policy:
    """Notes for whom it was asked."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout
        self.table = SharedTable(rollout_columns(SPACE, choices(4), rollout.num_envs, len(rollout.acted), state_size=1))
        self.batches: list[list[int]] = []
        self.final: list[tuple[list[int], list[int], list[int]]] = []

    def act(self, slots: Indices, nexts: Indices) -> None:
        """Notes the slots."""
        assert len(slots) == len(nexts) > 0
        assert not self.rollout.acted[slots].any(), "another thread would take the values for written"
        self.batches.append(slots.tolist())

    def value_final(self, envs: Indices, slots: Indices, nexts: Indices) -> None:
        """Notes what was truncated."""
        self.final.append((envs.tolist(), slots.tolist(), nexts.tolist()))


class Timeline:
    """Notes spans."""

    def __init__(self) -> None:
        self.spans: list[str] = []

    def span(self, kind: str) -> AbstractContextManager[None]:
        """Notes it."""
        self.spans.append(kind)
        return nullcontext()


class StopAt(NeverMonitor):
    """Stops a rollout that has so many samples."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def should_stop(self, rollout: Rollout) -> bool:
        """Whether it has."""
        return rollout.num_samples >= self.num_samples


class Bench:
    """A sampler with all that it needs."""

    def __init__(
        self, rollout: Rollout, *, seed: int = 0, envs_per_worker: int = 1, envs_per_batch: int = 1, plays: bool = False
    ) -> None:
        self.workers, self.policy = Workers(seed, envs_per_worker, envs_per_batch, rollout.num_envs), Policy(rollout)
        self.workers.counts = self.policy.table["counts"]
        self.timeline, self.num_refreshed = Timeline(), 0
        self.rollout = rollout
        self.sampler = self._sampler(NeverMonitor(), plays=plays)

    def _sampler(self, monitor: NeverMonitor, *, plays: bool) -> Sampler:
        return Sampler(
            self.rollout,
            self.policy,  # type: ignore[arg-type]  # it needs no more of an actor
            self.workers,  # type: ignore[arg-type]  # nor of a pool
            monitor,
            self.timeline,
            self._refresh,
            plays=plays,
        )

    def _refresh(self) -> None:
        self.num_refreshed += 1

    def stop_at(self, num_samples: int) -> None:
        """The other ranks wait when the rollout has so many samples."""
        self.sampler = self._sampler(StopAt(num_samples), plays=False)


def test_acts_where_environments_stand() -> None:
    """One inference for those that are named, on the slots where they stand, with the newest weights."""
    bench = Bench(FixedRollout(NUM_ENVS, 3))
    assert bench.sampler.ready.tolist() == list(range(NUM_ENVS))
    bench.sampler.act(np.array([4, 1]))
    assert bench.policy.batches == [[4, 1]]
    assert bench.num_refreshed == 1
    assert bench.sampler.num_in_flight == 2
    assert bench.sampler.ready.tolist() == [0, 2, 3, 5]
    assert bench.workers.flying == {env: int(bench.rollout.next[env]) for env in (4, 1)}


def test_truncated_steps_are_valued_before_the_next_begins() -> None:
    """Where a reply says that a step was truncated, the final observation is valued, with the state after the step."""
    bench = Bench(FixedRollout(NUM_ENVS, 3))
    bench.sampler.act(np.arange(NUM_ENVS))
    nexts = bench.rollout.next.tolist()
    bench.policy.table["truncated"][[2, 5]] = True
    bench.sampler.drain()
    values = sorted(row for envs, slots, nexts in bench.policy.final for row in zip(envs, slots, nexts, strict=True))
    assert values == [(2, 2, nexts[2]), (5, 5, nexts[5])]
    assert bench.rollout.at.tolist() == nexts
    assert bench.sampler.num_in_flight == 0


def test_waiting_is_for_workers_or_for_the_learner() -> None:
    """A wait with steps in flight is simulation; with none it is for the learner."""
    bench = Bench(FixedRollout(NUM_ENVS, 3))
    bench.workers.wakes = 1
    bench.sampler.receive(1)
    bench.sampler.act(np.array([0]))
    bench.sampler.receive(1)
    assert bench.timeline.spans == ["wait:learner", "infer", "simulate"]


def test_step_times_are_means_of_this_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time from the rollout's begin to an environment's last reply, by its replies; NaN for one without any."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    bench = Bench(VariableRollout(NUM_ENVS, 100))
    for _ in range(2):
        bench.sampler.begin()
        for at, env in ((3.0, 1), (4.0, 0), (9.0, 1)):
            bench.sampler.act(np.array([env]))
            now[0] += at
            bench.sampler.receive(1)
            now[0] -= at
        assert bench.sampler.step_times_s[:2].tolist() == [4.0, 4.5]
        assert np.isnan(bench.sampler.step_times_s[2:]).all()
        now[0] += 50


def rollout_of(kind: str) -> Rollout:
    """A rollout of each kind, of 8 steps of each environment or as many in total."""
    if kind == "fixed":
        return FixedRollout(NUM_ENVS, 8)
    return VariableRollout(NUM_ENVS, 8 * NUM_ENVS) if kind == "variable" else QuotaRollout(NUM_ENVS, 5, 8 * NUM_ENVS)


COLLECTORS: list[Collector] = [
    Lockstep(),
    Dynamic(),
    Dynamic(min_batch=3, max_batch=4),
    Dynamic(min_batch=6),
    Dynamic(max_batch=1),
    DoubleBuffered(num_envs_per_worker=2),
    DoubleBuffered(num_envs_per_worker=6, max_batch=2),
]


@pytest.mark.parametrize("kind", ["fixed", "variable", "quota"])
@pytest.mark.parametrize("collector", COLLECTORS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_every_collector_fills_every_rollout(collector: Collector, kind: str, seed: int) -> None:
    """Whatever order replies come in, rollout after rollout is filled; nobody is asked to wait for nothing."""
    bench = Bench(rollout_of(kind), seed=seed, envs_per_worker=collector.envs_per_worker(NUM_ENVS, 2))
    for number in range(10):
        bench.workers.wakes = number % 2
        bench.sampler.begin()
        collector.collect(bench.sampler)
        assert bench.rollout.is_full
        steps = bench.rollout.take().tolist()
        assert len(steps) == 8 * NUM_ENVS
        bench.rollout.release(slot for _, slot in steps)
        if kind != "variable":
            assert bench.sampler.num_in_flight == 0
    assert bench.timeline.spans.count("infer") == len(bench.policy.batches) == bench.num_refreshed


@pytest.mark.parametrize("kind", ["fixed", "variable", "quota"])
@pytest.mark.parametrize("collector", COLLECTORS, ids=repr)
def test_every_collector_breaks_off_when_the_time_is_up(collector: Collector, kind: str) -> None:
    """A wake-up ends the wait, no action is chosen any more, and only a rollout that is not full is broken off."""
    bench = Bench(rollout_of(kind), envs_per_worker=collector.envs_per_worker(NUM_ENVS, 2))
    collector.collect(bench.sampler)
    bench.sampler.is_out_of_time = True
    assert (bench.sampler.is_over, bench.sampler.broke_off) == (True, False)
    bench.rollout.release(slot for _, slot in bench.rollout.take().tolist())
    num_inferences = len(bench.policy.batches)
    bench.workers.wakes = 1
    collector.collect(bench.sampler)
    assert bench.sampler.broke_off
    assert len(bench.policy.batches) == num_inferences


@pytest.mark.parametrize("kind", ["fixed", "variable"])
@pytest.mark.parametrize("collector", COLLECTORS, ids=repr)
def test_every_collector_honours_preemption(collector: Collector, kind: str) -> None:
    """When the other ranks wait, no action is chosen any more (VER section 2.3), and the next rollout goes on."""
    bench = Bench(rollout_of(kind), envs_per_worker=collector.envs_per_worker(NUM_ENVS, 2))
    bench.stop_at(20)
    for _ in range(5):
        collector.collect(bench.sampler)
        assert 20 <= bench.rollout.num_samples <= 19 + NUM_ENVS
        num_inferences = len(bench.policy.batches)
        collector.collect(bench.sampler)
        assert len(bench.policy.batches) == num_inferences
        bench.rollout.release(slot for _, slot in bench.rollout.take().tolist())


def test_lockstep_steps_all_together() -> None:
    """One inference for all environments, then one step of all."""
    bench = Bench(FixedRollout(NUM_ENVS, 8))
    Lockstep().collect(bench.sampler)
    assert [len(batch) for batch in bench.policy.batches] == [NUM_ENVS] * 8


@pytest.mark.parametrize(("least", "most"), [(1, 2), (2, 2), (3, 5)])
def test_dynamic_batches_stay_within_their_bounds(least: int, most: int) -> None:
    """Batches are never above the maximum, and below the minimum only when nobody is left to wait for."""
    bench = Bench(VariableRollout(NUM_ENVS, 200))
    Dynamic(min_batch=least, max_batch=most).collect(bench.sampler)
    sizes = [len(batch) for batch in bench.policy.batches]
    assert max(sizes) == most
    assert min(sizes) >= least


def test_double_buffering_acts_for_whole_groups() -> None:
    """Every inference is for groups as they are: half of a worker's environments, or several such halves."""
    bench = Bench(VariableRollout(NUM_ENVS, 30 * NUM_ENVS), envs_per_worker=6)
    groups, seen = group_of(NUM_ENVS, 6), set()
    act = bench.sampler.act

    def note(envs: Indices) -> None:
        seen.add(tuple(sorted(envs.tolist())))
        act(envs)

    vars(bench.sampler)["act"] = note
    DoubleBuffered(num_envs_per_worker=6).collect(bench.sampler)
    assert seen <= {tuple(np.flatnonzero(np.isin(groups, chosen))) for chosen in ([0], [1], [0, 1])}
    assert len(seen) >= 2


@pytest.mark.parametrize("kind", ["fixed", "quota"])
def test_actors_play_until_the_rollout_is_full(kind: str) -> None:
    """Where the policy acts in the workers, the rank infers nothing, and the rollout is exact all the same."""
    bench = Bench(rollout_of(kind), plays=True)
    for _ in range(10):
        ActorSide().collect(bench.sampler)
        steps = bench.rollout.take().tolist()
        assert len(steps) == 8 * NUM_ENVS
        assert bench.sampler.num_in_flight == 0
        bench.rollout.release(slot for _, slot in steps)
    assert bench.policy.batches == []


def test_a_long_trajectory_is_played_in_parts() -> None:
    """A command must fit into a pipe: longer trajectories are played in several."""
    bench = Bench(FixedRollout(NUM_ENVS, MOST_PLAYED + 5), plays=True)
    ActorSide().collect(bench.sampler)
    assert bench.rollout.num_samples == NUM_ENVS * (MOST_PLAYED + 5)
