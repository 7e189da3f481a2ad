"""What fills a batch, as in `systems.engine.rollouts`, but as counts (compiled).

Versions are those of the policies that acted; they give the lag of learned samples.
"""

from __future__ import annotations

import numpy as np

from rlbench.systems.model.compiling import inlined, is_preempted, pause_s
from rlbench.systems.model.state import FIXED, NEVER, STREAM, THRESHOLD, VARIABLE, Rules, State


@inlined
def _note_version(st: State, s: int, version: int) -> None:
    st.sites[s].version_sum += version
    st.sites[s].version_least = min(st.sites[s].version_least, version)


@inlined
def finish(st: State, rules: Rules, s: int, env: int, num_steps: int) -> None:
    """Counts steps of an environment that have ended and were received."""
    version = st.envs[s, env].acted_version
    for _ in range(num_steps):
        if rules.rollout == STREAM:
            _add_to_stream(st, rules, s, env, version)
        elif rules.rollout == VARIABLE and st.sites[s].num_arrived >= rules.target:
            st.sites[s].num_arrived += 1
            st.envs[s, env].left += 1
            st.sites[s].left_version_sum += version
            st.sites[s].left_version_least = min(st.sites[s].left_version_least, version)
        else:
            st.sites[s].num_arrived += 1
            st.envs[s, env].taken += 1
            st.sites[s].num_complete += st.envs[s, env].taken == rules.num_steps
            _note_version(st, s, version)


@inlined
def _add_to_stream(st: State, rules: Rules, s: int, env: int, version: int) -> None:
    """Adds a step to the environment's trajectory, which waits for the learner once it is whole."""
    st.partial_versions[s, env, st.envs[s, env].taken] = version
    st.envs[s, env].taken += 1
    if st.envs[s, env].taken < rules.num_steps:
        return
    st.envs[s, env].taken = 0
    size = st.whole.shape[1]
    place = (st.sites[s].whole_first + st.sites[s].num_whole) % size
    st.sites[s].num_whole += 1
    st.sites[s].num_waiting += rules.num_steps
    st.whole[s, place].env = env
    st.whole[s, place].acted = st.envs[s, env].acted
    st.whole[s, place].first = 0
    for step in range(rules.num_steps):
        st.whole_versions[s, place, step] = st.partial_versions[s, env, step]
        st.whole_ended[s, place, step] = st.partial_ended[s, env, step]


@inlined
def take_from_stream(st: State, rules: Rules, s: int) -> bool:
    """The learner takes what it lacks, as far as it is there; returns whether that frees environments held back."""
    freed = False
    while st.sites[s].missing > 0 and st.sites[s].num_whole > 0:
        place = st.sites[s].whole_first
        first = st.whole[s, place].first
        versions = st.whole_versions[s, place]
        was_held_back = st.sites[s].num_waiting >= rules.limit
        while first < rules.num_steps and versions[first] < st.sites[s].oldest:
            first += 1
            st.sites[s].num_waiting -= 1
            st.envs[s, st.whole[s, place].env].discarded += 1
        is_kept = first < rules.num_steps
        while first < rules.num_steps and st.sites[s].missing > 0:
            st.sites[s].batch_lag += versions[first]
            st.sites[s].batch_least = min(st.sites[s].batch_least, versions[first])
            first += 1
            st.sites[s].num_waiting -= 1
            st.sites[s].missing -= 1
            st.envs[s, st.whole[s, place].env].batch += 1
        st.whole[s, place].first = first
        if is_kept:
            env = st.whole[s, place].env
            st.envs[s, env].run_end = st.whole[s, place].acted - (rules.num_steps - first)
            st.envs[s, env].run_num_ended = st.whole_ended[s, place, first - 1]
            st.sites[s].batch_open += rules.of_batch - st.whole_ended[s, place, first - 1]
        if first == rules.num_steps:
            st.sites[s].whole_first = (place + 1) % st.whole.shape[1]
            st.sites[s].num_whole -= 1
        freed |= was_held_back and st.sites[s].num_waiting < rules.limit
    return freed


@inlined
def may_act(st: State, rules: Rules, s: int, env: int) -> bool:
    """Whether an environment that waits for an action may have one."""
    if rules.rollout == FIXED:
        return bool(st.envs[s, env].taken < rules.num_steps)
    if rules.rollout == VARIABLE:
        return bool(st.sites[s].num_arrived < rules.target)
    has_room = st.sites[s].num_waiting < rules.limit
    return bool(not st.sites[s].stopping and (has_room or st.envs[s, env].taken > 0))


@inlined
def is_full(st: State, rules: Rules, s: int) -> bool:
    """Whether the rollout has all its steps."""
    if rules.rollout == FIXED:
        return bool(st.sites[s].num_complete == st.envs.shape[1])
    if rules.rollout == VARIABLE:
        return bool(st.sites[s].num_arrived >= rules.target)
    return bool(st.sites[s].stopping)


@inlined
def num_steps_of(st: State, rules: Rules, s: int) -> int:
    """Steps that the rank has of each environment: the fewest for fixed rollouts, else the mean, rounded down."""
    if rules.rollout == FIXED:
        fewest = st.envs[s, 0].taken
        for env in range(1, st.envs.shape[1]):
            fewest = min(fewest, st.envs[s, env].taken)
        return int(fewest)
    return int(st.sites[s].num_arrived // st.envs.shape[1])


@inlined
def report(st: State, rules: Rules, s: int, now: float) -> None:
    """A rank adds its new steps to the count of all ranks."""
    share = rules.target  # of a rank; steps that ended later belong to the next rollout
    new = min(st.sites[s].num_arrived, share) - st.sites[s].reported
    st.sites[s].reported += new
    place = min(st.sites[s].num_reports, st.reports.shape[1] - 1)
    if place == st.sites[s].num_reports:
        st.reports[s, place].new = 0
        st.sites[s].num_reports += 1
    st.reports[s, place].at = now  # reports that find no place are added to the last one
    st.reports[s, place].new += new


@inlined
def should_stop(st: State, rules: Rules, s: int, now: float) -> bool:
    """Whether the rank is cut, by what is known of the others; under `OPTIMAL` it also reports its steps."""
    if rules.preempt == NEVER:
        return False
    if rules.preempt == THRESHOLD:
        num_steps = num_steps_of(st, rules, s)
        if num_steps < rules.least_steps or rules.p >= 1:
            return False
        finished = int(np.searchsorted(st.known_finishes, now, side="right"))
        return is_preempted(finished, rules.num_ranks, rules.p, num_steps, rules.least_steps)
    if st.sites[s].planned < 0 or now < st.sites[s].counts_at:
        return False
    report(st, rules, s, now)
    st.sites[s].counts_at = now + pause_s(now - st.sites[s].rollout_began, st.sites[s].planned_s)
    return now >= st.sites[s].reached_at and num_steps_of(st, rules, s) >= 1
