"""The engine's own overhead: time in which work was ready and the resource it needs was free, yet nothing ran.

An environment takes these steps in turn, each with a resource that it needs:

    simulate (itself, for the time that its profile drew) -> render (its GPU's first lane)
        -> be inferred for, once all of its group wait (the inferring GPU's first lane) -> get the action (its worker)

All other time of an environment is *lost*: the overshoot of a sleep, a reply that nobody reads yet, an action that is
under way. Time is not lost while the lane that it needs is reserved for any work, while a mate of its group steps,
while its worker steps another environment, or while the system holds inference back by design: it learns (as far as the
learning lane is reserved), waits for other ranks, synchronises (for the profile's time), or lets no environment begin a
trajectory because enough samples wait for the learner. The overhead of collecting is the share of the window that an
environment loses, mean over environments. Where learning alternates with collecting, it includes the learner's own
overhead, since environments wait for the learner. Otherwise the learner has its own figure: the share of the window in
which a whole batch was there and its lane was free.

K steps of one environment. All times are `perf_counter` seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.overhead.moments import Floats, Moments

LANES = (("render", "infer"), ("prepare", "learn"))
"""Works of each lane of an emulated GPU; a lane serves first come, first served."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvSteps:
    """All steps of one environment, from the run's beginning."""

    gpu: int
    """Where it renders."""
    worker: int
    """The thread that steps it."""
    times: Floats
    """[K, 3]: a step begins, has simulated for the time that was drawn, ends."""

    @property
    def stepping(self) -> Floats:
        """[K, 2]: a step begins, ends."""
        return self.times[:, ::2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Work that was queued on an emulated GPU."""

    work: str
    num_items: int
    asked_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Times at which a rank does not infer, by design."""

    spans: Moments = field(default_factory=Moments)
    """All of them: it learns, communicates, or waits for other ranks."""
    excused: Moments = field(default_factory=Moments)
    """The part of `spans` in which something ran, or that the rank could not avoid."""
    full: Moments = field(default_factory=Moments)
    """When enough samples waited for the learner: no environment begins a trajectory."""
    trajectory_steps: int = 1
    """T, where there are trajectories."""


def lane_busy(reservations: Sequence[Reservation], works: Sequence[str]) -> Moments:
    """When a lane was reserved: each work starts when it was asked for or when the one before it ends, if later."""
    of_lane = sorted((r.end_s, r.asked_s) for r in reservations if r.work in works)
    before = [-np.inf, *(end for end, _ in of_lane)]
    return Moments([(max(asked, free), end) for (end, asked), free in zip(of_lane, before, strict=False)])


def lost_s(
    env: EnvSteps,
    *,
    mates: Sequence[EnvSteps],
    colleagues: Sequence[EnvSteps],
    rendering: Moments,
    inferring: Moments,
    inferences: Floats,
    held: Held,
    window: tuple[float, float],
) -> float:
    """Seconds of the window that one environment lost.

    Args:
        env: the environment.
        mates: the others of its group: all are inferred for together, so all have taken the same number of steps.
        colleagues: the others that its worker steps.
        rendering: when the lane on which it renders was reserved.
        inferring: when the lane on which it is inferred for was reserved.
        inferences: [I, 2], when each inference was asked for, and its reserved end; ascending.
        held: when its rank does not infer.
        window: from, to.
    """
    group = [env, *mates]
    count = min(len(member.times) for member in group)
    steps = env.times[:count]
    whole_at = np.max([member.times[:count, 2] for member in group], axis=0)[:-1]
    ended, begins = steps[:-1, 2], steps[1:, 0]
    # Inference may begin when the whole group waits, or when what held the rank back meanwhile is over.
    at = np.searchsorted(held.spans.ends, begins, side="right")
    resumed = np.append(-np.inf, held.spans.ends)[at]
    asked = np.append(inferences[:, 0], np.inf)
    first = np.searchsorted(inferences[:, 0], np.maximum(whole_at, resumed))
    # While the queue is full, inference leaves out environments that would begin a trajectory.
    begins_trajectory = np.arange(1, count) % held.trajectory_steps == 0
    later = np.searchsorted(inferences[:, 0], held.full.left_at(asked[first]))
    first = np.where(begins_trajectory, later, first)
    acted_for = np.minimum(np.append(inferences[:, 1], np.inf)[first], begins)

    waiting = inferring | held.excused | Moments(np.concatenate([np.empty((0, 2)), *(m.stepping for m in mates)]))
    excused_s = np.where(
        begins_trajectory, (waiting | held.full).covered_s(ended, acted_for), waiting.covered_s(ended, acted_for)
    )
    busy = Moments(np.concatenate([np.empty((0, 2)), *(other.stepping for other in colleagues)]))
    lost = (
        (steps[:-1, 2] - steps[:-1, 1] - rendering.covered_s(steps[:-1, 1], steps[:-1, 2]))
        + (acted_for - ended - excused_s)
        + (begins - acted_for - busy.covered_s(acted_for, begins))
    )
    counted = (steps[:-1, 0] >= window[0]) & (begins <= window[1])
    return float(lost[counted].sum())


def waiting_samples(
    ends: Sequence[Floats], num_steps: int, taken: Sequence[tuple[float, int]]
) -> tuple[Floats, Floats]:
    """Samples that wait for the learner, in whole trajectories: (moments of change [E], how many from then on [E]).

    Args:
        ends: when the steps of each environment ended [K]; every T steps complete a trajectory.
        num_steps: T.
        taken: when samples were taken, and how many.
    """
    complete = [(end, num_steps) for env in ends for end in env[num_steps - 1 :: num_steps].tolist()]
    events = np.array(sorted(complete + [(at, -num_items) for at, num_items in taken])).reshape(-1, 2)
    return events[:, 0], events[:, 1].cumsum()


def queue_full(
    ends: Sequence[Floats], num_steps: int, learning: Sequence[Reservation], limit: int, until: float
) -> Moments:
    """When at least `limit` samples waited for the learner, which takes a batch just before it prepares it."""
    size = max((r.num_items for r in learning), default=0)
    at, waiting = waiting_samples(ends, num_steps, [(r.asked_s, size) for r in learning if r.work == "prepare"])
    full, nexts = waiting >= limit, np.append(at[1:], until)
    return Moments(np.stack((at[full], nexts[full]), 1))


def learner_lost_s(
    ends: Sequence[Floats], num_steps: int, learning: Sequence[Reservation], window: tuple[float, float]
) -> float:
    """Seconds of the window in which a batch was complete, and the learning lane was free.

    Args:
        ends: when the steps of each environment ended [K]; every T steps complete a trajectory.
        num_steps: T.
        learning: reservations of the learning lane; one `learn` is one batch, each sample learned once.
        window: from, to.
    """
    batches = sorted((r.asked_s, r.num_items) for r in learning if r.work == "learn")
    if not batches:
        return window[1] - window[0]
    size = max(num_items for _, num_items in batches)
    at, samples = waiting_samples(ends, num_steps, batches)
    waiting, until = samples >= size, np.append(at[1:], max(window[1], at[-1]))
    ready = Moments(np.stack((at[waiting], until[waiting]), 1)) & Moments([window])
    idle = ready.ends - ready.begins - lane_busy(learning, LANES[1]).covered_s(ready.begins, ready.ends)
    return float(idle.sum())
