"""When ranks stop collecting: `systems.engine.rollouts.monitors`, for all ranks of a crew at once.

When a rank stops depends on other ranks, which the model may not have moved on yet. So it moves all ranks on as if none
stopped, until it knows when the condition was met. Then it takes them back and moves them on again, each until it
notices.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rlbench.systems.choices.preempt import Plan, is_preempted, plan
from rlbench.systems.model.state import FIXED, OFF, restore, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rlbench.systems.model.crew import Crew
    from rlbench.systems.model.fleet import Fleet
    from rlbench.systems.model.state import Bools, Floats, Ints

UNTOUCHED = 0.8
"""Share of the planned time before which ranks hardly ever have the planned steps."""
WINDOW = 0.1
"""Share of the planned time by which ranks are moved on before they may be taken back."""


@contextmanager
def held(fleet: Fleet) -> Iterator[dict[str, npt.NDArray[np.generic]]]:
    """Takes a snapshot, and keeps used draws for as long as it may be needed."""
    fleet.keeps_draws = True
    yield snapshot(fleet.state)
    fleet.keeps_draws = False


class MonitorModel(Protocol):
    """Watches the ranks of a crew."""

    def begin(self, crew: Crew) -> None:
        """Begins a rollout; may wait for all ranks."""

    def collect(self, crew: Crew) -> None:
        """Moves the crew's sites on until their rollouts are over."""

    def statistics(self) -> dict[str, Floats | float]:
        """What was planned and what came of it, as the engine's monitors have it."""


class NeverMonitorModel:
    """Every rank completes its rollout."""

    def begin(self, crew: Crew) -> None:
        """Nothing to do."""

    def collect(self, crew: Crew) -> None:
        """Moves sites on until all rollouts are full."""
        fleet = crew.run.fleet
        fleet.begin(crew.sites, crew.at)
        fleet.await_rollouts(crew.sites)

    def statistics(self) -> dict[str, Floats | float]:
        """There are none."""
        return {}


class ThresholdMonitor(NeverMonitorModel):
    """A rank stops when strictly more than p of the ranks have finished (DD-PPO section 3)."""

    def collect(self, crew: Crew) -> None:
        """Moves sites on until each rollout is full, or cut."""
        fleet, rules, sites = crew.run.fleet, crew.run.fleet.rules, crew.sites
        with held(fleet) as saved:
            super().collect(crew)
            finishes = np.sort(fleet.state.sites["finished_at"][sites])
            enough = (
                finish
                for count, finish in enumerate(finishes.tolist(), start=1)
                if is_preempted(count, len(sites), rules.p, rules.least_steps, rules.least_steps)
            )
            cut_at = next(enough, np.inf)
            late = sites[fleet.state.sites["finished_at"][sites] > cut_at]
            if not len(late):
                return
            begun_at = crew.at[np.isin(sites, late)]
            restore(fleet.state, saved, late)
            fleet.state.known_finishes[: len(finishes)] = finishes
            fleet.begin(late, begun_at)
            fleet.await_rollouts(late)
            fleet.state.known_finishes[:] = np.inf


class OptimalMonitor(NeverMonitorModel):
    """All ranks stop when they have S steps together (VER section 2.3)."""

    def __init__(self) -> None:
        self._plan = Plan(0, float("nan"))
        self._of_batch = 1
        self._all = 0
        self._total = 0
        self._collect_s: Floats = np.zeros(0)

    def begin(self, crew: Crew) -> None:
        """The ranks exchange the times of their environments, and plan."""
        state, rules, sites = crew.run.fleet.state, crew.run.fleet.rules, crew.sites
        crew.meet("communicate")
        self._of_batch, self._all = rules.of_batch, rules.target * len(sites)
        self._plan = Plan(self._all, float("nan"))
        with np.errstate(invalid="ignore", divide="ignore"):
            times = (state.envs["last_reply"][sites] - state.envs["began"][sites]) / state.envs["num_replies"][sites]
        learn_s = float(crew.learn_s.max())
        if np.isfinite(times).any() and learn_s > 0:
            times = np.where(np.isfinite(times), times, np.nanmax(times))
            self._plan = plan(times, learn_s, rules.num_steps, whole=rules.rollout == FIXED)

    def collect(self, crew: Crew) -> None:
        """Moves sites on until each has a full rollout, or notices that the ranks have S steps."""
        fleet, sites = crew.run.fleet, crew.sites
        begun_at = crew.at
        is_counted = self._plan.num_samples < self._all
        fleet.state.sites["planned"][sites] = self._plan.num_samples if is_counted else -1
        fleet.state.sites["planned_s"][sites] = self._plan.seconds
        if is_counted:
            self._collect_counted(crew)
            self._total = int(fleet.state.reports["new"][sites].sum(where=self._reported(fleet, sites)))
        else:
            super().collect(crew)
            self._total = self._all
        self._collect_s = fleet.state.sites["finished_at"][sites] - begun_at

    def _collect_counted(self, crew: Crew) -> None:
        fleet, sites = crew.run.fleet, crew.sites
        fleet.begin(sites, crew.at)
        share = UNTOUCHED
        while (fleet.state.sites["sampler"][sites] != OFF).any():
            with held(fleet) as saved:
                fleet.await_rollouts(sites, crew.at + share * self._plan.seconds)
                reached_at = self._reached_at(fleet, sites)
                if reached_at < np.inf:
                    restore(fleet.state, saved, sites)
                    fleet.state.sites["reached_at"][sites] = reached_at
                    fleet.await_rollouts(sites)
            share += WINDOW

    @staticmethod
    def _reported(fleet: Fleet, sites: Ints) -> Bools:
        """Which places for reports are taken, [K, M]."""
        size = fleet.state.reports.shape[1]
        taken: Bools = np.arange(size) < fleet.state.sites["num_reports"][sites, None]
        return taken

    def _reached_at(self, fleet: Fleet, sites: Ints) -> float:
        """When the steps reported so far came to S; infinite if they have not."""
        taken = self._reported(fleet, sites)
        reports = fleet.state.reports[sites][taken]
        moments, new = reports["at"], reports["new"]
        if new.sum() < self._plan.num_samples:
            return float(np.inf)
        order = np.argsort(moments, kind="stable")
        place = int(np.searchsorted(np.cumsum(new[order]), self._plan.num_samples))
        return float(moments[order][place])

    def statistics(self) -> dict[str, Floats | float]:
        """The plan and what came of it, as the engine's monitor has them."""
        return {
            "preempt/planned_steps": float(self._of_batch * self._plan.num_samples),
            "preempt/planned_s": self._plan.seconds,
            "preempt/steps": float(self._of_batch * self._total),
            "preempt/collect_s": self._collect_s,
        }
