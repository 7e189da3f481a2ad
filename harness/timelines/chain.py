"""What would help a measured run: the chain of who waited for whom, walked back through its spans.

A walk begins where an iteration ends, on the thread that learns, and goes back in time. A span of work counts for its
stage. From a span that waits it goes on where the wait was ended from:

    simulate                        the environment that replied last
    wait:rollout                    the rank's thread that samples
    wait:learner                    the rank's thread that learns
    communicate, wait:straggler     the rank that came last, where ranks go in step

From the begin of an environment's step it goes to what that had waited for:

    a worker that steps others      the step before
    a thread that was idle          the inference that chose the action, and on from there
    a thread that inferred          the environment's own step before: the time between is inference, since with
                                    shorter inferences the environment would have been in an earlier one
    nothing of either               the same: the environment has the policy itself

Where environments are still stepping when collecting ends, whatever steps came first made up the rollout. Then each of
them that was not passed over is walked back from there, and the mean of these walks counts.

So all of the time is attributed. What is not on the chain is over before something else is. Waiting for a slower rank
is that rank's work: no time counts as stragglers.

A gain compares the time with what is left of it when the work of a stage on the chain takes 1 / `MORE` of its time.
This is of the first order: work that is sped up is taken not to change who waits for whom. One such change is seen:
where a learner waits for experience, the time becomes no less than that of the threads that learn without this wait.
Others are not: gains are too large where another wait would take the place of one that ends sooner. Nor is it seen what
a span waits for inside: work that waits for a core or a GPU, or that other work on its GPU slows down, counts for its
own stage.

    Yang and Miller: Critical path analysis for the execution of parallel and distributed programs, ICDCS 1988.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlbench.harness.contract.prediction import MORE
from rlbench.harness.timelines.timelines import Envs, Spans, Thread

OWN, SECOND = -1, -2
"""Values of `environment` for spans of a rank's main thread and of its second one."""
STAGE_OF = {"reset": "simulator", "infer": "inference", "schedule": "scheduling", "learn": "learner"}
"""Stages of work on a rank's threads; work of another kind is `other`."""
STAGES = ("simulator", "inference", "scheduling", "learner", "communication")
"""What there may be more of."""
MEETINGS = ("communicate", "wait:straggler")
"""Spans in which ranks meet that go in step."""
WAITS = ("simulate", "wait:rollout", "wait:learner", *MEETINGS)
"""Spans of a rank's threads in which they wait for something."""
SLACK = "slack"
"""Waits of a learner for experience, for a walk that leaves out the threads that sample."""
Place = Thread | int
"""Where a walk is: on a thread, or in an environment's span, by its index."""
Step = tuple[str, float, Place]
"""What the time back to an earlier moment counts for, that moment, and where the walk is then."""


class Wait(NamedTuple):
    """What went on when something else was done."""

    rank: int
    environment: int
    """What waited: an environment, or `OWN` or `SECOND` for a thread of the rank."""
    until_s: float
    """When it went on."""
    for_rank: int
    for_environment: int
    """What it had waited for."""
    done_s: float
    """When that was done."""


@dataclass(frozen=True, slots=True)
class _Sampling:
    """The thread of a rank that samples, and the environments that it acts for; moments ascend."""

    thread: Thread
    envs: Envs
    asked: list[float]
    """When inferences have begun, which take whoever waits."""
    acted: list[float]
    """When what is neither a wait for environments nor scheduling has ended: inferences, and all of another phase."""
    idle: list[float]
    """When what is neither an inference nor scheduling has ended."""
    entered: list[float]
    """When what is none of the three has ended, so that collecting may begin."""


class Chain:
    """The spans of a run, to be walked back."""

    def __init__(self, spans: Spans, *, in_step: bool) -> None:
        """Arguments are those of `gains`."""
        of_threads, of_envs = spans.where(spans.environment < 0), spans.where(spans.environment >= 0)
        is_own = of_threads.environment == OWN
        self.learners: list[int] = np.unique(of_threads.rank[is_own & (of_threads.kind == "learn")]).tolist()
        """Ranks that learn; the first of them acts for the environments of those that do not."""
        meetings = of_threads.where(is_own & np.isin(of_threads.kind, MEETINGS) & in_step)
        # A rank that comes last may have a meeting that lasts no time; no other such span matters.
        self._arrivals = {rank: meetings.begin_s[meetings.rank == rank].tolist() for rank in self.learners}
        of_threads, of_envs = (each.where(each.end_s > each.begin_s) for each in (of_threads, of_envs))
        self._own = {rank: Thread.of(of_threads, rank, OWN) for rank in self.learners}
        acts = np.where(np.isin(of_envs.rank, self.learners), of_envs.rank, self.learners[0] if self.learners else -1)
        self._in_step = in_step
        self._sampling = {}
        for rank in self.learners:
            second = Thread.of(of_threads, rank, SECOND)
            sampler = second if second.begins else self._own[rank]
            self._sampling[rank] = _sampling(sampler, Envs.of(of_envs.where(acts == rank)))

    def walk(self, rank: int, since: float, until: float, *, samples: bool = True) -> dict[str, float]:
        """Attributes the seconds between two moments to stages; at the later one an iteration of the rank ends.

        `samples`: whether waits for experience are followed; if not they are `SLACK`.
        """
        seconds: dict[str, float] = defaultdict(float)
        place: Place = self._own[rank]
        moment, met, is_collecting = until, {rank}, False
        while moment > since:
            if isinstance(place, Thread):
                rank = place.rank
                was_collecting, is_collecting = is_collecting, self._collects(place, moment, was=is_collecting)
                if is_collecting and not was_collecting and self._sampling[rank].envs.are_stepping(moment):
                    moment, is_collecting = self._pool(rank, since, moment, seconds), False
                    continue
                stage, before, place = self._on_thread(place, moment, met, samples=samples)
            else:
                is_collecting = True
                stage, before, place = self._in_env(rank, place, moment)
            seconds[stage] += moment - max(before, since)
            met = {rank} if before < moment else met | {rank}
            moment = before
        return seconds

    def path(self, since: float, until: float) -> Iterator[Wait]:
        """What waited for what on the walks back from one moment to another, the latest first.

        Where ranks go in step there is one walk, from the last of them that was at work, else one for each rank. Where
        environments are still stepping when collecting ends, it goes on from the one that replied last.
        """
        ranks = self.learners
        if self._in_step and ranks:
            ranks = [max(ranks, key=lambda rank: min(until, max(self._own[rank].ends, default=-math.inf)))]
        for rank in ranks:
            yield from self._path(rank, since, until)

    def _path(self, rank: int, since: float, until: float) -> Iterator[Wait]:
        place: Place = self._own[rank]
        moment, met = until, {rank}
        while moment > since:
            if isinstance(place, Thread):
                rank = place.rank
                _, before, previous = self._on_thread(place, moment, met)
            else:
                _, before, previous = self._in_env(rank, place, moment)
            lane, other = self._lane(rank, place), self._lane(rank, previous)
            if lane != other and before >= since:
                yield Wait(*lane, moment, *other, before)
            met = {rank} if before < moment else met | {rank}
            moment, place = before, previous

    def waits(self, since: float, until: float) -> Iterator[Wait]:
        """What each wait of the ranks' threads that ended between two moments was for, as far as their spans tell."""
        samplers = [self._sampling[rank].thread for rank in self.learners]
        for thread in (*self._own.values(), *(each for each in samplers if each.which == SECOND)):
            for at in range(bisect_right(thread.ends, since), bisect_right(thread.ends, until)):
                if thread.kinds[at] in WAITS:
                    moment = thread.ends[at]
                    _, done, previous = self._on_thread(thread, moment, {thread.rank})
                    if previous is not thread:
                        lane = self._lane(thread.rank, previous)
                        yield Wait(thread.rank, thread.which, moment, *lane, done)

    def _lane(self, rank: int, place: Place) -> tuple[int, int]:
        """Rank and environment of a place; `rank` is the one that acts for the environment."""
        return (place.rank, place.which) if isinstance(place, Thread) else self._sampling[rank].envs.lanes[place]

    def _collects(self, thread: Thread, moment: float, *, was: bool) -> bool:
        """Whether a thread collects just before a moment; scheduling tells no more than the walk knew: `was`."""
        kind = thread.before(moment)[2]
        is_sampler = thread is self._sampling[thread.rank].thread
        return is_sampler and (kind in {"simulate", "infer"} or (was and kind == "schedule"))

    def _pool(self, rank: int, since: float, until: float, seconds: dict[str, float]) -> float:
        """Adds the seconds for which a rank collected, as the mean of its environments'; returns when that began."""
        sampling = self._sampling[rank]
        envs, asked_s = sampling.envs, _latest(sampling.asked, until)
        since = max(since, _latest(sampling.entered, until))
        spans = [span for span in envs.at(until) if envs.ends[span] >= asked_s]
        for span in spans:
            moment = until
            step: Step = "inference", min(until, envs.ends[span]), span  # it waits for that, if its step is over
            while moment > since:
                stage, before, place = step
                seconds[stage] += (moment - max(before, since)) / len(spans)
                moment = before
                if isinstance(place, Thread):
                    step = self._on_thread(place, moment, {rank})
                else:
                    step = self._in_env(rank, place, moment)
        return since

    def _on_thread(self, thread: Thread, moment: float, met: set[int], *, samples: bool = True) -> Step:
        """The step back from a moment; `met` are ranks that the walk has been on at this moment."""
        begin, end, kind = thread.before(moment)
        if end < moment:
            return "other", end, thread
        if kind in MEETINGS:
            return self._at_meeting(thread, begin, moment, met)
        if kind == "simulate":
            envs = self._sampling[thread.rank].envs
            reply = envs.last(moment)
            is_there = reply >= 0 and envs.ends[reply] > begin
            return ("scheduling", envs.ends[reply], reply) if is_there else ("simulator", begin, thread)
        if kind == "wait:rollout" and samples:
            return _before_wait(thread, moment, self._sampling[thread.rank].thread, "wait:learner")
        if kind == "wait:learner":
            return _before_wait(thread, moment, self._own[thread.rank], "wait:rollout")
        return SLACK if kind == "wait:rollout" else STAGE_OF.get(kind, "other"), begin, thread

    def _at_meeting(self, thread: Thread, begin: float, moment: float, met: set[int]) -> Step:
        """The step back to the arrival of the last rank; what follows that is communication."""
        arrived, last = begin, thread.rank
        for rank, arrivals in self._arrivals.items():
            at = _latest(arrivals, moment)
            if rank not in met and at > arrived:
                arrived, last = at, rank
        return "communication", arrived, self._own[last]

    def _in_env(self, rank: int, span: int, moment: float) -> Step:
        """The step back from a moment in the span of an environment that a rank acts for, or from its begin."""
        sampling = self._sampling[rank]
        envs = sampling.envs
        begin = envs.begins[span]
        if moment > begin:
            return "simulator", begin, span
        acted_s, before, previous = _latest(sampling.acted, begin), envs.before(span), envs.previous[span]
        if before >= 0 and envs.ends[before] > acted_s:
            return "inference" if before == previous else "scheduling", envs.ends[before], before
        if previous >= 0 and envs.ends[previous] >= _latest(sampling.idle, acted_s):
            return "inference", envs.ends[previous], previous
        return "scheduling", acted_s, sampling.thread


def _sampling(thread: Thread, envs: Envs) -> _Sampling:
    return _Sampling(
        thread=thread,
        envs=envs,
        asked=[begin for begin, kind in zip(thread.begins, thread.kinds, strict=True) if kind == "infer"],
        acted=thread.ends_of_all_but(("simulate", "schedule")),
        idle=thread.ends_of_all_but(("infer", "schedule")),
        entered=thread.ends_of_all_but(("simulate", "infer", "schedule")),
    )


def _latest(moments: list[float], by: float) -> float:
    """The latest of ascending moments that is no later than another one."""
    at = bisect_right(moments, by) - 1
    return moments[at] if at >= 0 else -math.inf


def _before_wait(waiting: Thread, moment: float, other: Thread, waits: str) -> Step:
    """The step to a rank's other thread, which has ended a wait; if that has waited since, to where it began to.

    A rank's only thread has waited for something that has no span.
    """
    begin, end, kind = other.before(moment)
    has_waited = other is waiting or (kind == waits and end >= moment)
    return "other", begin if has_waited else moment, other


def gains(spans: Spans, moments: Mapping[int, Sequence[float]], *, in_step: bool = True) -> dict[str, float]:
    """How many times as many steps/s `MORE` of each of `STAGES` would give, to the first order.

    Empty where the spans do not tell: no rank learns, no iteration has all its spans, or most of the time is `other`.

    Args:
        spans: of all ranks.
        moments: by rank, the begins and ends of the iterations that count, ascending, in seconds on the spans' clock.
        in_step: whether ranks go through iterations together, so that one chain leads through all of them.
    """
    chain, since_s = Chain(spans, in_step=in_step), spans.kept_since_s
    kept = {rank: [moment for moment in moments.get(rank, ()) if moment >= since_s] for rank in chain.learners}
    ends = {rank: (each[0], each[-1]) for rank, each in kept.items() if len(each) > 1}
    if in_step and ends:
        last = max(ends, key=lambda rank: ends[rank][1])
        ends = {last: ends[last]}
    seconds, learning = (
        _sum(chain.walk(rank, *each, samples=samples) for rank, each in ends.items()) for samples in (True, False)
    )
    if max(seconds[stage] for stage in STAGES) <= seconds["other"]:
        return {}
    whole_s, busy_s, saved = sum(seconds.values()), sum(learning.values()) - learning[SLACK], 1 - 1 / MORE
    return {
        stage: whole_s / max(whole_s - saved * seconds[stage], busy_s - saved * learning[stage]) for stage in STAGES
    }


def _sum(walks: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for walk in walks:
        for stage, seconds in walk.items():
            total[stage] += seconds
    return total
