"""The sites of a run, as the model's loops see them: moved on by compiled code, with new draws when some run out.

Letters as in `state.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.devices.booking import LANE
from rlbench.systems.model import sites as compiled
from rlbench.systems.model.sampler import BATCH, HUNGRY, OVER, REACHED, STUCK

if TYPE_CHECKING:
    from rlbench.harness.contract.prediction import Times
    from rlbench.systems.model.state import Counts, Floats, Ints, Rules, State

DRAWN_AT_ONCE = 1024
"""Environments whose times are drawn in one call; more would only take more memory."""


class Fleet:
    """Moves sites on in time. Arguments named `sites` are site numbers [K]; moments [K] belong to them."""

    def __init__(self, state: State, rules: Rules, times: Times) -> None:
        self.state, self.rules = state, rules
        self._times = times
        self.keeps_draws = False
        """Whether used draws may be needed again, because a snapshot is held."""

    def begin(self, sites: Ints, at: Floats) -> None:
        """The samplers begin a rollout, at moments [K]."""
        self.reach(sites, at)
        self._top_up(sites)
        compiled.begin_rollouts(self.state, sites, at)

    def reach(self, sites: Ints, at: Floats) -> None:
        """Moves sites on until everything before these moments has happened."""
        self._advance(sites, at, REACHED)

    def await_rollouts(self, sites: Ints, until: Floats | None = None) -> None:
        """Moves sites on until their samplers are off, or the moments are reached."""
        self._advance(sites, until, OVER)

    def await_batches(self, sites: Ints) -> Floats:
        """Moves sites on until the learners' batches are there; returns when that is, [K]."""
        self._advance(sites, None, BATCH)
        now: Floats = self.state.sites["now"][sites]
        return now

    def infer(self, sites: Ints, at: Floats, num_items: Ints) -> Floats:
        """The learners' threads estimate values of `num_items` observations; returns when they are done, [K]."""
        item_s = self.rules.infer_item_s / self.rules.of_batch
        took = np.where(num_items > 0, self.rules.infer_fixed_s + item_s * num_items, 0.0)
        return self._book(sites, 0, at, took)

    def book_learning(self, sites: Ints, at: Floats, took: Floats) -> Floats:
        """Begins learning that takes `took` seconds on idle GPUs; returns when it ends, unless it is put off."""
        return self._book(sites, 1, at, took)

    def end_learning(self, sites: Ints, ends: Floats, took: Floats) -> Floats:
        """Moves sites on until booked learning has ended, however often it is put off; returns when that is."""
        while True:
            self._advance(sites, ends, REACHED)
            put_off = np.where(took > 0, self.state.words[sites, 0, LANE + 1], ends)
            if (put_off <= ends).all():
                return ends
            ends = np.maximum(ends, put_off)

    def drain(self) -> None:
        """Ends the run: every step that has begun ends, and none begins."""
        sites = np.arange(len(self.state.sites))
        self.state.sites["stopping"] = True
        self._advance(sites, None, REACHED, may_end=True)
        compiled.read_replies(self.state, self.rules, sites)

    def _book(self, sites: Ints, lane: int, at: Floats, took: Floats) -> Floats:
        self.reach(sites, at)
        ends: Floats = compiled.book_lanes(self.state, self.rules, sites, lane, at, took)
        return ends

    def _advance(self, sites: Ints, until: Floats | None, goal: int, *, may_end: bool = False) -> None:
        """Moves sites on, and gives them draws whenever some have run out."""
        until = np.full(len(sites), np.inf) if until is None else until
        while len(sites):
            codes = compiled.advance_sites(self.state, self.rules, sites, until, goal)
            if codes.max() < HUNGRY:
                return
            assert may_end or not (codes == STUCK).any(), "the model waits for what will never happen"
            sites, until = sites[codes == HUNGRY], until[codes == HUNGRY]
            rows, envs = np.nonzero(self.state.envs["drawn"][sites] == self.state.envs["position"][sites])
            self._draw(sites[rows], envs)

    def _top_up(self, sites: Ints) -> None:
        """Gives every environment a rollout's worth of draws, so that few run out in the middle of it."""
        wanted = max(1, min(self.rules.num_steps + 2, self.state.seconds.shape[2] // 2))
        rows, envs = np.nonzero(self.state.envs["drawn"][sites] - self.state.envs["position"][sites] < wanted)
        self._draw(sites[rows], envs)

    def _draw(self, of_sites: Ints, envs: Ints) -> None:
        """Draws a block for each of some environments."""
        num_envs = self.state.envs.shape[1]
        at_once = max(1, DRAWN_AT_ONCE // self.rules.of_batch)
        for first in range(0, len(envs), at_once):
            sites, places = of_sites[first : first + at_once], envs[first : first + at_once]
            seconds, drawn = self._times.draw((sites * num_envs + places).tolist())
            ends: Counts = drawn.reshape(*seconds.shape, -1).sum(2, dtype=np.int16)
            if not self.keeps_draws:
                compiled.forget_used_draws(self.state, sites, places)
            self._make_room(int(self.state.envs["drawn"][sites, places].max()) + seconds.shape[1])
            compiled.add_draws(self.state, sites, places, seconds, ends)

    def _make_room(self, num_drawn: int) -> None:
        size = self.state.seconds.shape[2]
        if num_drawn <= size:
            return
        more = ((0, 0), (0, 0), (0, max(num_drawn, 2 * size) - size))
        seconds: Floats = np.pad(self.state.seconds, more)
        more_ends: Counts = np.pad(self.state.ends, more)
        self.state = self.state._replace(seconds=seconds, ends=more_ends)
