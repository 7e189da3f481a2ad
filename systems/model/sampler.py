"""A sampler and its environments, event by event (compiled): the model of `systems.engine.rollouts.sampler`.

decide: is it over? -> whom to act for -> infer (on the site's first GPU) -> send -> read replies -> decide
                                   no one: ------------> wait for replies ---------------^
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlbench.systems.choices.collect import MOST_PLAYED
from rlbench.systems.model.compiling import book, choose_batch, compiled, compiled_bare, inlined, whole_groups
from rlbench.systems.model.environments import first_env, go_on, send
from rlbench.systems.model.rollouts import finish, is_full, may_act, report, should_stop, take_from_stream
from rlbench.systems.model.state import (
    ACTING,
    ACTOR_SIDE,
    DOUBLE_BUFFERED,
    IDLE,
    INFER,
    LOCKSTEP,
    OFF,
    OPTIMAL,
    REPLIED,
    SCHEDULE,
    SIMULATE,
    WAIT_LEARNER,
    WAITING,
    Rules,
    State,
)

if TYPE_CHECKING:
    from rlbench.systems.model.state import Ints

FEW = 32
REACHED, OVER, BATCH, HUNGRY, STUCK = range(5)
"""Why the model stops: the moment is reached; the rollout is over; the learner's batch is there; draws ran out;
nothing will ever happen again."""


@inlined
def _close_wait(st: State, s: int, now: float) -> None:
    kind = SIMULATE if st.sites[s].num_in_flight > 0 else WAIT_LEARNER
    st.spans[s, kind] += now - st.sites[s].since
    st.sites[s].since = now


@inlined
def _sort_replied(st: State, s: int) -> None:
    """Sorts the environments that have replied; mostly they are few and in order."""
    replied, count = st.replied[s], st.sites[s].num_replied
    if count > FEW:
        place = 0
        for env in range(st.envs.shape[1]):
            if st.envs[s, env].phase == REPLIED:
                replied[place] = env
                place += 1
        return
    for place in range(1, count):
        env, before = replied[place], place - 1
        while before >= 0 and replied[before] > env:
            replied[before + 1] = replied[before]
            before -= 1
        replied[before + 1] = env


@inlined
def receive(st: State, rules: Rules, s: int, now: float) -> None:
    """Reads all replies, in the order of their environments."""
    _sort_replied(st, s)
    count = st.sites[s].num_replied
    st.sites[s].num_replied = 0
    for place in range(count):
        env = st.replied[s, place]
        st.envs[s, env].phase = IDLE
        st.sites[s].num_in_flight -= 1
        if rules.collect == ACTOR_SIDE:
            st.envs[s, env].acted += st.envs[s, env].played
            finish(st, rules, s, env, st.envs[s, env].played)
            continue
        if st.envs[s, env].carried:
            st.envs[s, env].carried = False
            st.envs[s, env].began = now
            st.envs[s, env].num_replies = -1
        st.envs[s, env].last_reply = now
        st.envs[s, env].num_replies += 1
        finish(st, rules, s, env, 1)


@compiled
def _keep_whole_groups(st: State, s: int, count: int) -> int:
    """Keeps those of the first `count` of a batch whose group has no environment in flight; returns how many."""
    whole = whole_groups(st.batch[s, :count], st.envs["phase"][s] != IDLE, st.group_of[s])
    for place, env in enumerate(whole):
        st.batch[s, place] = env
    return len(whole)


@compiled
def _keep_chosen(batch: Ints, count: int, num_in_flight: int, rules: Rules, turn: int) -> int:
    """Keeps those of the first `count` of a batch that the next inference acts for; returns how many."""
    chosen = choose_batch(batch[:count], num_in_flight, rules.min_batch, rules.max_batch, turn)
    for place, env in enumerate(chosen):
        batch[place] = env
    return len(chosen)


@inlined
def _choose(st: State, rules: Rules, s: int) -> int:
    """Finds the environments of the next inference, or of the next trajectories; returns how many."""
    count = 0
    for env in range(st.envs.shape[1]):
        if st.envs[s, env].phase == IDLE and may_act(st, rules, s, env):
            st.batch[s, count] = env
            count += 1
    num_in_flight = st.sites[s].num_in_flight
    if rules.collect == ACTOR_SIDE or count == 0:
        return count
    if rules.collect == LOCKSTEP:
        return 0 if num_in_flight > 0 else count
    if rules.collect == DOUBLE_BUFFERED:
        count = _keep_whole_groups(st, s, count)
    return _keep_chosen(st.batch[s], count, num_in_flight, rules, st.sites[s].turn)


@inlined
def _decide(st: State, rules: Rules, s: int, now: float) -> None:
    """Decides what the sampler does next, at `now`; it has nothing under way."""
    must_drain = rules.collect == LOCKSTEP and st.sites[s].num_in_flight > 0
    if not must_drain and (is_full(st, rules, s) or should_stop(st, rules, s, now)):
        if rules.preempt == OPTIMAL and st.sites[s].planned >= 0:
            report(st, rules, s, now)
        st.sites[s].sampler = OFF
        st.sites[s].finished_at = now
        return
    count = _choose(st, rules, s)
    st.sites[s].since = now
    st.sites[s].sampler = WAITING
    if count == 0:
        return
    if rules.collect == ACTOR_SIDE or not st.sites[s].is_held:
        st.sites[s].acts_with = st.sites[s].version
    if rules.collect == ACTOR_SIDE:
        for place in range(count):
            env = st.batch[s, place]
            st.envs[s, env].acted_version = st.sites[s].acts_with
            st.envs[s, env].played = 0
            st.envs[s, env].burst = min(rules.num_steps - st.envs[s, env].taken, MOST_PLAYED)
            send(st, rules, s, env, now)
        return
    for place in range(count):
        st.envs[s, st.batch[s, place]].acted_version = st.sites[s].acts_with
    st.sites[s].batch_size = count
    st.sites[s].turn = st.batch[s, count - 1] + 1
    took, held = rules.infer_fixed_s + rules.infer_item_s * count, rules.infer_cores
    scheduling = rules.schedule_s * count
    if held > 0:
        took += scheduling  # on the core that it has
    end = book(st.words[s, 0], 0, now, took, rules.render_factor, rules.learn_factor, rules.cores, held)
    st.sites[s].until = end if held > 0 else end + scheduling
    st.sites[s].sampler = ACTING


@inlined
def _act(st: State, rules: Rules, s: int, now: float) -> None:
    """Ends an inference: sends the actions; replies are read next."""
    scheduling = rules.schedule_s * st.sites[s].batch_size
    st.spans[s, SCHEDULE] += scheduling
    st.spans[s, INFER] += now - st.sites[s].since - scheduling
    st.sites[s].since = now
    for place in range(st.sites[s].batch_size):
        env = st.batch[s, place]
        st.envs[s, env].acted += 1
        send(st, rules, s, env, now)
    st.sites[s].sampler = WAITING
    st.sites[s].looks = True


@inlined
def begin_rollout(st: State, s: int, now: float) -> None:
    """The sampler begins a rollout; its environments may still be stepping."""
    site = st.sites[s]
    site.now = now
    site.rollout_began = now
    site.reached_at = np.inf
    site.counts_at = now
    site.reported = 0
    site.num_reports = 0
    site.since = now
    site.turn = 0
    site.sampler = WAITING
    site.looks = True
    for number in range(st.envs.shape[1]):
        env = st.envs[s, number]
        env.began = now
        env.last_reply = np.nan
        env.num_replies = 0
        env.carried = env.phase != IDLE


@inlined
def _look(st: State, rules: Rules, s: int) -> bool:
    """Lets a sampler go on that waited for what happened (in lockstep: all replies); returns whether it did."""
    site = st.sites[s]
    if not site.looks:
        return False
    site.looks = False
    if site.sampler != WAITING or (rules.collect == LOCKSTEP and site.num_replied < site.num_in_flight):
        return False
    _close_wait(st, s, site.now)
    receive(st, rules, s, site.now)
    _decide(st, rules, s, site.now)
    return True


@inlined
def _has_batch(st: State, rules: Rules, s: int) -> bool:
    """Gives the learner what it lacks; returns whether it has its batch."""
    st.sites[s].looks |= take_from_stream(st, rules, s)
    return bool(st.sites[s].missing == 0)


@compiled_bare
def advance(st: State, rules: Rules, s: int, until: float, goal: int) -> int:
    """Does everything that happens before `until`, or up to the goal; returns why it stopped.

    Events at that very moment come later: the learner's thread, which is there already, goes first.

    `goal`: `OVER` stops when the sampler is off, `BATCH` when the learner's batch is there, `REACHED` at `until` only.
    """
    events, site = st.events[s], st.sites[s]
    while True:
        if site.is_hungry:
            site.is_hungry = False
            return HUNGRY
        if goal == BATCH and _has_batch(st, rules, s):
            return BATCH
        if site.now < until and _look(st, rules, s):
            continue
        if goal == OVER and site.sampler == OFF:
            return OVER
        acts_at = site.until if site.sampler == ACTING else np.inf
        now = min(events[1], acts_at)
        if now == until == np.inf:
            return STUCK
        if now >= until:
            site.now = max(site.now, until)
            return REACHED
        site.now = now
        if acts_at <= events[1]:
            _act(st, rules, s, now)
        elif go_on(st, rules, s, first_env(events), now):
            site.looks = True
