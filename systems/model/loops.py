"""What a crew does in which order, as `systems.choices.overlap` has it.

Loops yield before anything that other ranks notice: each update, and the end of an iteration.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rlbench.harness.metering.fates import DISCARDED
from rlbench.systems.model.crew import largest_lag
from rlbench.systems.model.state import IDLE, NO_VERSION, VARIABLE, WAIT_LEARNER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rlbench.systems.model.crew import Crew
    from rlbench.systems.model.state import Floats, Ints
    from rlbench.systems.model.stragglers import MonitorModel


class Taken(NamedTuple):
    """What a crew's ranks learn from, [K] each."""

    fresh: Ints
    stale: Ints
    lag_sum: Ints
    lag_max: Ints
    of_envs: Ints
    """The fresh samples by environment, [K, E]."""

    @classmethod
    def of_batches(cls, size: int, fresh: Ints, stale: Ints, lag_sum: Ints, lag_max: Ints, of_envs: Ints) -> Taken:
        """What is learned where each environment of the model stands for `size`."""
        return cls(size * fresh, size * stale, size * lag_sum, lag_max, np.repeat(of_envs, size, axis=1))


class ExperienceMaker:
    """Makes experience of rollouts, and fills them with stale steps where the system does so."""

    def __init__(self, crew: Crew, *, fills_stale: bool) -> None:
        self._crew, self._fills_stale = crew, fills_stale
        self._buffer = np.zeros(len(crew.sites), np.int64)

    def take(self) -> Taken:
        """Ends the rollouts [K] and begins the next ones; estimates the values that are not known."""
        crew = self._crew
        state, rules, sites = crew.run.fleet.state, crew.run.fleet.rules, crew.sites
        arrived = state.sites["num_arrived"][sites]
        fresh = np.minimum(arrived, rules.target) if rules.rollout == VARIABLE else arrived
        lag_sum = fresh * state.sites["version"][sites] - state.sites["version_sum"][sites]
        lag_max = largest_lag(state.sites["version"][sites], state.sites["version_least"][sites], fresh)
        envs = state.envs[sites]
        waits = (envs["taken"] > 0) & (envs["left"] == 0) & (envs["phase"] == IDLE)
        num_unknown = np.where(waits, rules.of_batch - envs["num_ended"], 0).sum(1)
        state.envs["taken"][sites], state.envs["left"][sites] = envs["left"], 0
        state.sites["num_arrived"][sites], state.sites["num_complete"][sites] = envs["left"].sum(1), 0
        for name, nothing in (("version_sum", 0), ("version_least", NO_VERSION)):
            state.sites[name][sites] = state.sites[f"left_{name}"][sites]
            state.sites[f"left_{name}"][sites] = nothing
        stale = np.clip(rules.target - fresh, 0, self._buffer) if self._fills_stale else np.zeros_like(fresh)
        self._buffer = fresh + stale
        crew.infer(num_unknown)
        return Taken.of_batches(rules.of_batch, fresh, stale, lag_sum, lag_max, envs["taken"])


def learn(crew: Crew, taken: Taken) -> Iterator[None]:
    """Learns from the experience in all epochs."""
    crew.prepare()
    sizes = minibatches(crew, taken.fresh + taken.stale)
    for size in sizes * crew.run.learn.epochs:
        yield
        crew.update(size)
    crew.count_learned(*taken)


def minibatches(crew: Crew, num_samples: Ints) -> list[Floats]:
    """Samples of each mini-batch, [K] each, as `systems.learn.sequences` splits them.

    Environments of a rollout that was cut may have different numbers of samples, and the engine groups environments at
    random. Here a mini-batch has the mean number of samples for its number of environments.
    """
    count = crew.run.learn.num_minibatches
    if crew.run.split == "steps":
        ends = [group * num_samples // count for group in range(count + 1)]
        return [(end - begin).astype(np.float64) for begin, end in pairwise(ends)]
    num_envs = crew.run.fleet.state.envs.shape[1] * crew.run.fleet.rules.of_batch
    firsts = [-(-group * num_envs // count) for group in range(count + 1)]
    return [num_samples * (end - begin) / num_envs for begin, end in pairwise(firsts)]


def statistics_of(taken: Taken) -> dict[str, Floats | float]:
    """The statistics of learning, as the engine has them."""
    return {"collected": taken.fresh.astype(np.float64)}


def alternate(crew: Crew, monitor: MonitorModel, *, fills_stale: bool) -> Iterator[None]:
    """Collects, learns, and begins again (VER section 2.1)."""
    fleet, experience = crew.run.fleet, ExperienceMaker(crew, fills_stale=fills_stale)
    spent = False
    while not spent:
        monitor.begin(crew)
        monitor.collect(crew)
        crew.at = fleet.state.sites["finished_at"][crew.sites]
        taken = experience.take()
        if crew.run.talks.is_synchronous:
            crew.meet("wait:straggler")
        yield from learn(crew, taken)
        yield
        spent = crew.end_iteration(statistics_of(taken) | monitor.statistics())


def one_ahead(crew: Crew, monitor: MonitorModel, *, fills_stale: bool) -> Iterator[None]:
    """Learns on one rollout while the next is collected (HTS-RL; VER sections 2.1, 7)."""
    fleet, experience = crew.run.fleet, ExperienceMaker(crew, fills_stale=fills_stale)
    fleet.state.sites["is_held"][crew.sites] = True
    monitor.begin(crew)
    monitor.collect(crew)
    crew.wait_until("other", fleet.state.sites["finished_at"][crew.sites])
    spent = False
    while not spent:
        taken = experience.take()
        fleet.state.sites["acts_with"][crew.sites] = fleet.state.sites["version"][crew.sites]
        monitor.begin(crew)
        fleet.state.spans[crew.sites, WAIT_LEARNER] += crew.at - fleet.state.sites["finished_at"][crew.sites]
        fleet.begin(crew.sites, crew.at)
        yield from learn(crew, taken)
        fleet.await_rollouts(crew.sites)
        crew.wait_until("wait:rollout", fleet.state.sites["finished_at"][crew.sites])
        if crew.run.talks.is_synchronous:
            crew.meet("wait:straggler")
        yield
        spent = crew.end_iteration(statistics_of(taken) | monitor.statistics())


def continuous(crew: Crew, max_lag: int) -> Iterator[None]:
    """Neither collecting nor learning ever stops (Sample Factory section 3.1)."""
    fleet, sites = crew.run.fleet, crew.sites
    fleet.begin(sites, crew.at)
    spent = False
    while not spent:
        state, target = fleet.state, fleet.rules.target
        before, state.envs["batch"][sites] = state.envs["discarded"][sites], 0
        state.sites["missing"][sites], state.sites["oldest"][sites] = target, state.sites["version"][sites] - max_lag
        state.sites["batch_lag"][sites], state.sites["batch_least"][sites] = 0, NO_VERSION
        state.sites["batch_open"][sites] = 0
        state.envs["run_end"][sites] = -1
        crew.wait_until("wait:rollout", fleet.await_batches(sites))
        state = fleet.state
        discarded = np.repeat(state.envs["discarded"][sites] - before, fleet.rules.of_batch, axis=1)
        crew.run.ledger.count(crew.ranks, "discarded", discarded.sum(1))
        crew.run.ledger.settle(crew.ranks, DISCARDED, discarded)
        # The observations after these runs were not acted on yet, so their values must be estimated; V-trace has all.
        is_unknown = state.envs["run_end"][sites] == state.envs["acted"][sites]
        num_unknown = np.where(is_unknown, fleet.rules.of_batch - state.envs["run_num_ended"][sites], 0).sum(1)
        num_open = state.sites["batch_open"][sites]
        crew.infer(num_open if crew.run.learn.correct == "vtrace" else num_unknown)
        fresh = np.full(len(sites), target)
        version = state.sites["version"][sites]
        lag_sum = fresh * version - state.sites["batch_lag"][sites]
        lag_max = largest_lag(version, state.sites["batch_least"][sites], fresh)
        stale, of_envs = np.zeros_like(fresh), state.envs["batch"][sites]
        taken = Taken.of_batches(fleet.rules.of_batch, fresh, stale, lag_sum, lag_max, of_envs)
        yield from learn(crew, taken)
        yield
        spent = crew.end_iteration(statistics_of(taken))
