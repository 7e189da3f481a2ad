"""Environments, their workers, cores and GPUs: what happens between an action and its reply (compiled).

    send -> begin_step -> simulate (on a core, if they are shared) -> render (on a GPU's first lane)
        -> reset (on a core, if they are shared) -> reply

An actor infers on a core before it simulates, and goes on with its next step instead of replying.

Each environment has at most one event ahead. Their moments are in a tournament tree, which gives the first one at once.
A worker steps its environments one after the other, in the order in which their actions came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlbench.systems.model.compiling import book, book_core, inlined
from rlbench.systems.model.state import (
    ACTOR_SIDE,
    INFERRING,
    QUEUED,
    RENDERING,
    REPLIED,
    RESETTING,
    SIMULATING,
    STARTING,
    STREAM,
    Rules,
    State,
)

if TYPE_CHECKING:
    from rlbench.systems.model.state import Floats


@inlined
def put_event(events: Floats, env: int, moment: float) -> None:
    """Schedules environment `env` to go on at `moment`."""
    place = len(events) // 2 + env
    events[place] = moment
    while place > 1:
        place //= 2
        first = min(events[2 * place], events[2 * place + 1])
        if events[place] == first:
            return
        events[place] = first


@inlined
def first_env(events: Floats) -> int:
    """Finds the environment that goes on first."""
    half, place = len(events) // 2, 1
    while place < half:
        place *= 2
        if events[place] > events[place + 1]:
            place += 1
    return place - half


@inlined
def _compute(st: State, rules: Rules, s: int, env: int, now: float, seconds: float) -> None:
    """Keeps a core busy for `seconds`, after others' work where cores are shared."""
    done = now + seconds
    if rules.cores > 0:
        done = book_core(st.words[s, st.envs[s, env].cores_of], rules.cores, now, seconds)
    put_event(st.events[s], env, done)


@inlined
def begin_step(st: State, rules: Rules, s: int, env: int, now: float) -> None:
    """An environment applies its action; an actor infers one first."""
    if rules.collect == ACTOR_SIDE:
        st.envs[s, env].phase = INFERRING
        _compute(st, rules, s, env, now, rules.actor_infer_s)
    else:
        _simulate(st, rules, s, env, now)


@inlined
def _simulate(st: State, rules: Rules, s: int, env: int, now: float) -> None:
    st.envs[s, env].phase = SIMULATING
    st.envs[s, env].began_step = now
    st.envs[s, env].wait_s += now - st.envs[s, env].answered
    _compute(st, rules, s, env, now, st.seconds[s, env, st.envs[s, env].position] + rules.answer_s)


@inlined
def send(st: State, rules: Rules, s: int, env: int, now: float) -> None:
    """Sends an action to an environment's worker, which may have others to step first."""
    st.sites[s].num_in_flight += 1
    worker = env // rules.envs_per_worker
    if st.workers[s, worker].is_busy:
        st.queue[s, worker, st.workers[s, worker].length] = env
        st.workers[s, worker].length += 1
        st.envs[s, env].phase = QUEUED
        return
    st.workers[s, worker].is_busy = True
    if rules.infer_cores > 0:  # the rank goes on, and perhaps takes a core, before the worker wakes
        st.envs[s, env].phase = STARTING
        put_event(st.events[s], env, now)
    else:
        begin_step(st, rules, s, env, now)


@inlined
def _free_worker(st: State, rules: Rules, s: int, env: int, now: float) -> None:
    worker = env // rules.envs_per_worker
    length = st.workers[s, worker].length
    if length == 0:
        st.workers[s, worker].is_busy = False
        return
    following = st.queue[s, worker, 0]
    for place in range(1, length):
        st.queue[s, worker, place - 1] = st.queue[s, worker, place]
    st.workers[s, worker].length = length - 1
    begin_step(st, rules, s, following, now)


@inlined
def _render(st: State, rules: Rules, s: int, env: int, now: float) -> None:
    words = st.words[s, st.envs[s, env].gpu_of]
    end = book(words, 0, now, rules.render_s, rules.render_factor, rules.learn_factor)
    took = end - st.envs[s, env].began_step - rules.answer_s
    at = st.envs[s, env].position
    ended = st.ends[s, env, at]
    st.envs[s, env].position = at + 1
    st.sites[s].is_hungry |= at + 1 == st.envs[s, env].drawn
    st.envs[s, env].num_env_steps += 1
    st.envs[s, env].step_s += took
    st.envs[s, env].step_s_squared += took * took
    st.envs[s, env].num_ended = ended
    if rules.rollout == STREAM:
        played = st.envs[s, env].played if rules.collect == ACTOR_SIDE else 0
        st.partial_ended[s, env, st.envs[s, env].taken + played] = ended
    if ended > 0:
        st.envs[s, env].num_episodes += ended
        if rules.cores == 0:
            st.envs[s, env].reset_s += rules.reset_s
            end += rules.reset_s
    st.envs[s, env].answered = end
    st.envs[s, env].phase = RENDERING
    put_event(st.events[s], env, end)


@inlined
def _reset(st: State, rules: Rules, s: int, env: int, now: float) -> None:
    """An environment waits for a core, and resets on it."""
    done = book_core(st.words[s, st.envs[s, env].cores_of], rules.cores, now, rules.reset_s)
    st.envs[s, env].reset_s += done - now
    st.envs[s, env].answered = done
    st.envs[s, env].phase = RESETTING
    put_event(st.events[s], env, done)


@inlined
def go_on(st: State, rules: Rules, s: int, env: int, now: float) -> bool:
    """Does what is next for an environment at its event; returns whether its worker has replied."""
    if st.envs[s, env].phase == STARTING:
        begin_step(st, rules, s, env, now)
        return False
    if st.envs[s, env].phase == INFERRING:
        _simulate(st, rules, s, env, now)
        return False
    if st.envs[s, env].phase == SIMULATING:
        _render(st, rules, s, env, now)
        return False
    ended = st.envs[s, env].num_ended > 0
    if st.envs[s, env].phase == RENDERING and ended and rules.cores > 0 and rules.reset_s > 0:
        _reset(st, rules, s, env, now)
        return False
    st.envs[s, env].played += 1
    st.envs[s, env].burst -= 1
    if st.envs[s, env].burst > 0 and not st.sites[s].stopping:
        begin_step(st, rules, s, env, now)
        return False
    put_event(st.events[s], env, np.inf)
    st.envs[s, env].phase = REPLIED
    st.replied[s, st.sites[s].num_replied] = env
    st.sites[s].num_replied += 1
    _free_worker(st, rules, s, env, now)
    return True
