"""What the ranks of a predicted run would have metered: counters, spans, and a row of the series for each iteration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.devices.booking import BUSY_S
from rlbench.harness.metering.fates import MOST_BLOCKS, NUM_FATES, joined
from rlbench.harness.metering.meter_file import KIND_OF, SPANS
from rlbench.systems.model.state import ACTING, INFER, OFF, SCHEDULE, SIMULATE, WAIT_LEARNER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rlbench.harness.contract.prediction import Timed
    from rlbench.systems.model.state import Bools, Floats, Ints, Rules, State

SAMPLER_KINDS = {"infer": INFER, "simulate": SIMULATE, "wait:learner": WAIT_LEARNER, "schedule": SCHEDULE}
NO_SAMPLER = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where ranks are in the model's arrays, [R] each."""

    site: Ints
    """The site of the rank's sampler, or `NO_SAMPLER`."""
    gpu_site: Ints
    gpu: Ints
    """The number of the rank's GPU at `gpu_site`."""


@dataclass(kw_only=True, slots=True)
class Ledger:
    """Counters and spans of R ranks; every array is [R] unless it says otherwise."""

    places: Places
    has_lane: bool
    """Whether samplers have timelines of their own."""
    num_envs: int
    """E: environments of a site."""
    rows: list[dict[str, float | int]] = field(default_factory=list)
    spans: Floats = field(init=False)
    """Seconds of the ranks' main timelines, [R, kinds]."""
    counts: dict[str, Ints] = field(init=False)
    published: Ints = field(init=False)
    """Learned env steps that each rank has told the others."""
    _told: dict[str, Floats] = field(init=False)
    """Statistics that each rank has told the others."""
    _has_told: Bools = field(init=False)
    lag_max: Ints = field(init=False)
    iterations: Ints = field(init=False)
    ended: Floats = field(init=False)
    """When each rank ended its last iteration."""
    fates: Ints = field(init=False)
    """Env steps learned and discarded in blocks of iterations, as in `harness.metering.fates`, [S, B, F, E]."""
    per_block: Ints = field(init=False)
    """Iterations of a block, [S]."""
    cut: Ints = field(init=False)
    """Env steps that rollouts lacked when they were cut, [S, E]."""
    _last: dict[str, Floats] = field(init=False)

    def __post_init__(self) -> None:
        """Begins with nothing counted."""
        num_ranks = len(self.places.site)
        self.spans = np.zeros((num_ranks, len(SPANS)))
        self.counts = {name: np.zeros(num_ranks, np.int64) for name in ("learned", "reused", "discarded", "lag_sum")}
        self.published, self.lag_max, self.iterations = (np.zeros(num_ranks, np.int64) for _ in range(3))
        self.ended = np.zeros(num_ranks)
        num_sites = int(self.places.site.max()) + 1
        self.fates = np.zeros((num_sites, MOST_BLOCKS, NUM_FATES, self.num_envs), np.int64)
        self.per_block, self.cut = np.ones(num_sites, np.int64), np.zeros((num_sites, self.num_envs), np.int64)
        self._last, self._told = {}, {}
        self._has_told = np.zeros(num_ranks, np.bool_)

    def spend(self, ranks: Ints, kind: str, seconds: Floats) -> None:
        """Adds seconds [ranks] to a kind of span of the main timelines."""
        self.spans[ranks, KIND_OF[kind]] += seconds

    def count(self, ranks: Ints, name: str, amount: Ints) -> None:
        """Adds amounts [ranks] to a counter."""
        self.counts[name][ranks] += amount

    def settle(self, ranks: Ints, fate: int, num_env_steps: Ints) -> None:
        """Counts env steps of each environment that have met a fate, [ranks, E]."""
        sites = self.places.site[ranks]
        self.fates[sites, self.iterations[ranks] // self.per_block[sites], fate] += num_env_steps

    def publish(self, ranks: Ints, statistics: Mapping[str, Floats | float]) -> dict[str, float]:
        """Ranks say how far they are; returns the means of what each rank said last."""
        self.published[ranks] = self.counts["learned"][ranks]
        self._has_told[ranks] = True
        means = {}
        for name, values in statistics.items():
            told = self._told.setdefault(name, np.zeros(len(self.ended)))
            told[ranks] = values
            means[name] = float(told[self._has_told].mean())
        return means

    def note_lag(self, ranks: Ints, total: Ints, largest: Ints) -> None:
        """Adds the lag of samples that are learned now: its sum and its maximum, [ranks]."""
        self.counts["lag_sum"][ranks] += total
        self.lag_max[ranks] = np.maximum(self.lag_max[ranks], largest)

    def end_iteration(self, state: State, ranks: Ints, ends: Floats, statistics: Mapping[str, float]) -> None:
        """Closes an iteration of `ranks`, at moments [ranks] up to which everything has happened."""
        columns: dict[str, list[float | int]] = {
            "rank": ranks.tolist(),
            "iteration": self.iterations[ranks].tolist(),
            "begin_s": self.ended[ranks].tolist(),
            "end_s": ends.tolist(),
        }
        for name, total in self._totals(state, ranks, ends).items():
            last = self._last.setdefault(name, np.zeros(len(self.ended), total.dtype))
            columns[name] = (total - last[ranks]).tolist()
            last[ranks] = total
        for name, value in statistics.items():
            columns[name] = [value] * len(ranks)
        self.rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        self.ended[ranks] = ends
        self.iterations[ranks] += 1
        sites = self.places.site[ranks]
        full = sites[(sites != NO_SAMPLER) & (self.iterations[ranks] == MOST_BLOCKS * self.per_block[sites])]
        self.fates[full] = joined(self.fates[full])
        self.per_block[full] *= 2

    def _totals(self, state: State, ranks: Ints, ends: Floats) -> dict[str, Floats | Ints]:
        """Totals whose changes the series has, [ranks] each; in one call all ranks have samplers, or none has."""
        sites, gpus = self.places.site[ranks], (self.places.gpu_site[ranks], self.places.gpu[ranks])
        totals: dict[str, Floats | Ints] = {name: counts[ranks] for name, counts in self.counts.items()}
        totals |= {f"span/{name}": self.spans[ranks, kind] for name, kind in KIND_OF.items()}
        if (sites != NO_SAMPLER).all():
            sampled, lane = state.spans[sites], "span/"
            if self.has_lane:
                sampled, lane = sampled + _open_spans(state, sites, ends), "sampler/"
                totals |= {f"{lane}{name}": np.zeros(len(ranks)) for name in SPANS}
            for name, kind in SAMPLER_KINDS.items():
                totals[f"{lane}{name}"] += sampled[:, kind]
        totals["gpu_busy_s"] = state.words[(*gpus, BUSY_S)]
        return totals


def _open_spans(state: State, sites: Ints, ends: Floats) -> Floats:
    """Seconds up to `ends` [K] of the spans that the samplers of some sites [K] have open, [K, 4]."""
    of_sites = state.sites[sites]
    is_off, waits_for = of_sites["sampler"] == OFF, np.where(of_sites["num_in_flight"] > 0, SIMULATE, WAIT_LEARNER)
    kinds = np.where(is_off, WAIT_LEARNER, np.where(of_sites["sampler"] == ACTING, INFER, waits_for))
    seconds = np.zeros((len(sites), len(SAMPLER_KINDS)))
    seconds[np.arange(len(sites)), kinds] = ends - np.where(is_off, of_sites["finished_at"], of_sites["since"])
    return seconds


def counters_of(state: State, rules: Rules, scenario: Timed, seeds: Sequence[int], num_ranks: int) -> dict[str, Floats]:
    """What the meters of all environments would hold, [R, N] each; of a call's time, each has an equal share.

    `seeds`: of all environments, rank after rank.
    """
    shape = num_ranks, len(seeds) // num_ranks

    def of_all(name: str) -> Floats:
        return np.repeat(state.envs[name].ravel(), rules.of_batch).reshape(shape).astype(np.float64)

    episodes = of_all("num_episodes")
    if rules.of_batch > 1:
        num_calls = state.envs["num_env_steps"].ravel()
        episodes = episodes_of(scenario, seeds, num_calls).reshape(shape)
    return {
        "env_steps": of_all("num_env_steps"),
        "episodes": episodes,
        "step_s": of_all("step_s") / rules.of_batch,
        "reset_s": of_all("reset_s") / rules.of_batch,
        "simulate": of_all("step_s"),
        "reset": of_all("reset_s"),
        "wait:inference": of_all("wait_s"),
    }


def episodes_of(scenario: Timed, seeds: Sequence[int], num_calls: Ints) -> Floats:
    """How many episodes of each environment ended, [B, C], in so many calls of each batch, [B]; draws these again."""
    times, size = scenario.times(seeds), len(seeds) // len(num_calls)
    found = np.zeros((len(num_calls), size))
    left = num_calls.copy()
    while len(batches := np.flatnonzero(left > 0)):
        for batch in batches.tolist():
            _, ends = times.draw([batch])
            found[batch] += ends[0, : left[batch]].sum(0)
            left[batch] -= ends.shape[1]
    return found
