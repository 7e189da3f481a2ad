"""A crew is the ranks that go through a run together: all of them where updates wait for all, else one rank each.

A crew's loop is a generator. It yields before each update, which may use other ranks' links, and before it says how far
it is; `predict.py` always resumes the crew that is earliest in time. Letters: K ranks of the crew, R of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rlbench.harness.contract.budget import Progress
from rlbench.harness.metering.fates import LEARNED
from rlbench.systems.model.state import FIXED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlbench.harness.contract.budget import Limits
    from rlbench.harness.contract.settings import GpuCosts, LearnSettings
    from rlbench.systems.choices.rollout import Split
    from rlbench.systems.model.fleet import Fleet
    from rlbench.systems.model.ledger import Ledger
    from rlbench.systems.model.state import Floats, Ints


class Talks(Protocol):
    """How long ranks take to agree."""

    is_synchronous: bool
    synchronize_s: float
    """Seconds that ranks take to end an iteration together."""
    holds_weights: bool
    """Whether a sampler beside the learner can take no weights while an update's messages are under way."""

    def update(self, ranks: Ints, begin: Floats) -> Floats:
        """An update begins on `ranks` at moments [K]; returns when its messages have passed, [K]."""

    def end_iteration(self, ranks: Ints, at: Floats) -> Floats:
        """`ranks` end an iteration at moments [K]; returns when they go on, [K]."""


@dataclass(kw_only=True, slots=True)
class RunModel:
    """What all crews share."""

    fleet: Fleet
    ledger: Ledger
    talks: Talks
    limits: Limits
    learn: LearnSettings
    split: Split
    costs: GpuCosts
    is_over: bool = False
    """Whether some rank has said that the run is over; used where ranks do not wait for each other."""


@dataclass(kw_only=True, slots=True)
class Crew:
    """The ranks, and where each stands in time."""

    run: RunModel
    ranks: Ints
    sites: Ints
    followers: Ints
    """Ranks that only own a device, and wait for the crew."""
    at: Floats = field(init=False)
    """The moment at which each rank stands, [K]."""
    learn_s: Floats = field(init=False)
    """Seconds of the last learning phase, without messages, [K]."""

    def __post_init__(self) -> None:
        """All ranks begin at moment 0."""
        self.at, self.learn_s = np.zeros(len(self.sites)), np.zeros(len(self.sites))

    def meet(self, kind: str) -> None:
        """All ranks wait for the last one; `kind` is the span of the wait."""
        self.wait_until(kind, np.full_like(self.at, self.at.max()))

    def wait_until(self, kind: str, moments: Floats) -> None:
        """Each rank goes on at its moment [K], if that is later; `kind` is the span of the time until then."""
        self.run.ledger.spend(self.ranks, kind, np.maximum(moments - self.at, 0.0))
        self.at = np.maximum(moments, self.at)

    def infer(self, num_items: Ints) -> None:
        """Estimates the values of `num_items` [K] observations."""
        self.wait_until("infer", self.run.fleet.infer(self.sites, self.at, num_items))

    def prepare(self) -> None:
        """Begins a learning phase with the returns and advantages."""
        self.learn_s = np.zeros_like(self.at)
        costs = np.full_like(self.at, self.run.costs.prepare_s)
        ends = self.run.fleet.book_learning(self.sites, self.at, costs)
        self._learn_until(self.run.fleet.end_learning(self.sites, ends, costs))

    def update(self, num_samples: Floats) -> None:
        """One optimiser step on `num_samples` [K] samples; messages between ranks overlap with it."""
        begin = self.at
        costs = self.run.costs.learn_fixed_s + self.run.costs.learn_item_s * num_samples
        fleet = self.run.fleet
        passed = self.run.talks.update(self.ranks, begin)
        ends = fleet.book_learning(self.sites, begin, costs)
        was_held = fleet.state.sites["is_held"][self.sites]
        fleet.state.sites["is_held"][self.sites] |= self.run.talks.holds_weights
        fleet.reach(self.sites, passed)
        fleet.state.sites["is_held"][self.sites] = was_held
        fleet.state.sites["version"][self.sites] += 1
        ends = fleet.end_learning(self.sites, ends, costs)
        self.wait_until("communicate", passed)
        self._learn_until(ends)

    def _learn_until(self, moments: Floats) -> None:
        self.learn_s += np.maximum(moments - self.at, 0.0)
        self.wait_until("learn", moments)

    def count_learned(self, fresh: Ints, stale: Ints, lag_sum: Ints, lag_max: Ints, of_envs: Ints) -> None:
        """Counts a batch [K] that is learned from in all epochs; `of_envs` [K, E] are its fresh samples."""
        ledger, epochs, rules = self.run.ledger, self.run.learn.epochs, self.run.fleet.rules
        ledger.settle(self.ranks, LEARNED, of_envs)
        if rules.rollout == FIXED:
            ledger.cut[self.sites] += rules.num_steps - of_envs
        ledger.count(self.ranks, "learned", fresh)
        ledger.count(self.ranks, "reused", stale + (epochs - 1) * (fresh + stale))
        ledger.note_lag(self.ranks, lag_sum, lag_max)

    def end_iteration(self, statistics: Mapping[str, Floats | float]) -> bool:
        """Agrees with the other ranks, closes the iteration, and says whether the run is over."""
        run, ledger = self.run, self.run.ledger
        means = ledger.publish(self.ranks, statistics)
        elapsed_s = float(self.at[0]) + run.talks.synchronize_s
        self.wait_until("communicate", run.talks.end_iteration(self.ranks, self.at))
        run.fleet.reach(self.sites, self.at)
        ledger.end_iteration(run.fleet.state, self.ranks, self.at, means)
        if len(self.followers):
            ends = np.full(len(self.followers), self.at.max())
            ledger.spend(self.followers, "wait:learner", ends - ledger.ended[self.followers])
            ledger.end_iteration(run.fleet.state, self.followers, ends, {})
        progress = Progress(
            iterations=int(ledger.iterations[self.ranks[0]]),
            env_steps=int(ledger.published.sum()),
            seconds=elapsed_s,
            stop_requested=False,
            metrics={},
        )
        over = run.limits.is_spent(progress)
        if run.talks.is_synchronous:
            return over
        run.is_over |= over
        return run.is_over


def largest_lag(version: Ints, least: Ints, count: Ints) -> Ints:
    """The lag of the oldest of `count` samples, [K]; 0 where there are none."""
    lags: Ints = np.where(count > 0, version - least, 0)
    return lags
