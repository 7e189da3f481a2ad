"""Compiled functions that move many sites on at once, each to its own moment; the model's loops are made of them.

`sites` are site numbers [K]; everything else is [K] too, unless it says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlbench.systems.model.compiling import book, compiled
from rlbench.systems.model.sampler import advance, begin_rollout, receive
from rlbench.systems.model.state import Rules, State

if TYPE_CHECKING:
    from rlbench.systems.model.state import Counts, Floats, Ints


@compiled
def begin_rollouts(st: State, sites: Ints, at: Floats) -> None:
    """The samplers begin a rollout, at moments up to which everything has happened."""
    for place, site in enumerate(sites):
        begin_rollout(st, site, at[place])


@compiled
def advance_sites(st: State, rules: Rules, sites: Ints, until: Floats, goal: int) -> Ints:
    """Moves sites on up to their moments, or to the goal; returns why each stopped, as `sampler.advance` says."""
    codes = np.empty(len(sites), np.int64)
    for place, site in enumerate(sites):
        codes[place] = advance(st, rules, site, until[place], goal)
    return codes


@compiled
def book_lanes(st: State, rules: Rules, sites: Ints, lane: int, at: Floats, took: Floats) -> Floats:
    """Books work of `took` seconds on the sites' first GPUs; returns when it will be done, if it is not put off."""
    ends = at.copy()
    factor, other, held = rules.render_factor, rules.learn_factor, rules.infer_cores
    if lane == 1:
        factor, other, held = other, factor, rules.learn_cores
    for place, site in enumerate(sites):
        ends[place] = book(st.words[site, 0], lane, at[place], took[place], factor, other, rules.cores, held)
    return ends


@compiled
def read_replies(st: State, rules: Rules, sites: Ints) -> None:
    """Reads all replies, though no sampler waits for them: the run is over."""
    for site in sites:
        receive(st, rules, site, st.sites[site].now)


@compiled
def forget_used_draws(st: State, sites: Ints, envs: Ints) -> None:
    """Drops the used draws of some environments, [J] at sites [J], and moves the others to the front."""
    for row, env in enumerate(envs):
        site = sites[row]
        used = st.envs[site, env].position
        left = st.envs[site, env].drawn - used
        for place in range(left):
            st.seconds[site, env, place] = st.seconds[site, env, used + place]
            st.ends[site, env, place] = st.ends[site, env, used + place]
        st.envs[site, env].drawn = left
        st.envs[site, env].position = 0


@compiled
def add_draws(st: State, sites: Ints, envs: Ints, seconds: Floats, ends: Counts) -> None:
    """Appends a block of draws, [J, B], to those that some environments, [J] at sites [J], still have."""
    for row, env in enumerate(envs):
        site = sites[row]
        first = st.envs[site, env].drawn
        for place in range(seconds.shape[1]):
            st.seconds[site, env, first + place] = seconds[row, place]
            st.ends[site, env, first + place] = ends[row, place]
        st.envs[site, env].drawn = first + seconds.shape[1]
