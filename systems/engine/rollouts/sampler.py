"""The sampler of a rank: a collector acts and receives through it, and decides which environments act, and when.

    idle environments --choose--> `act`: infer, write actions, send --> environment workers --> `receive`: finished

The thread that samples alone writes actions, and what the policy says of them, to the table and moves the rollout on.
`act` blocks on the device, and `receive` until there are replies (`workers/pool.py` says what frees it). Nothing here
waits for the learner, except for an environment that `rollout.may_act` holds back; a wake-up of the pool frees it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rlbench.systems.choices.collect import MOST_PLAYED
from rlbench.systems.engine.rollouts.rollout import FixedRollout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from rlbench.systems.engine.rollouts.monitors import Monitor
    from rlbench.systems.engine.rollouts.rollout import Rollout
    from rlbench.systems.engine.workers.inference import Actor
    from rlbench.systems.engine.workers.pool import WorkerPool


class Timeline(Protocol):
    """Where a thread's spans are recorded: a rank's meter, or its second lane."""

    def span(self, kind: str) -> AbstractContextManager[None]:
        """Times what happens inside."""


class Sampler:
    """The environments of one rank, as a collector sees them; N environments."""

    def __init__(
        self,
        rollout: Rollout,
        actor: Actor,
        pool: WorkerPool,
        monitor: Monitor,
        timeline: Timeline,
        refresh: Callable[[], None],
        *,
        plays: bool = False,
        of_recv: int = 0,
    ) -> None:
        """`of_recv`: M, where batches are pools that answer for M of their environments at a time; else 0."""
        self.rollout = rollout
        self.pool = pool
        self.timeline = timeline
        self._actor, self._monitor = actor, monitor
        self._refresh = refresh
        self._of_batch, self._of_recv = pool.envs_per_batch, of_recv
        self._fills_places = isinstance(rollout, FixedRollout)  # whatever takes a place counts
        self.plays = plays
        """Whether the policy acts in the workers."""
        self.is_out_of_time = False
        """Whether to collect no more; any thread may set it, and then wakes the pool."""
        self.broke_off = False
        """Whether the rollout ended for lack of time."""
        self._began_s = np.full(rollout.num_envs, time.perf_counter())
        self._last_reply_s = np.full(rollout.num_envs, np.nan)
        self._num_replies = np.zeros(rollout.num_envs, dtype=np.int64)
        self._carried = np.zeros(rollout.num_envs, dtype=np.bool_)
        """Environments whose next reply ends a step of the previous rollout: its time is not known here."""

    def begin(self) -> None:
        """Begins a rollout: the clocks of `step_times_s` start again."""
        self._began_s[:] = time.perf_counter()
        self._last_reply_s[:] = np.nan
        self._num_replies[:] = 0
        self._carried[:] = self.rollout.in_flight

    @property
    def step_times_s(self) -> npt.NDArray[np.float64]:
        """Mean time to receive a step of each environment in this rollout, inference included, [N]; NaN without one."""
        with np.errstate(invalid="ignore", divide="ignore"):
            times: npt.NDArray[np.float64] = (self._last_reply_s - self._began_s) / self._num_replies
        return times

    @property
    def is_over(self) -> bool:
        """Whether the rollout is full, or the other ranks wait for it, or the time is up, which sets `broke_off`."""
        if self.rollout.is_full or self._monitor.should_stop(self.rollout):
            return True
        self.broke_off = self.is_out_of_time
        return self.broke_off

    @property
    def ready(self) -> npt.NDArray[np.int64]:
        """The environments that wait for an action and may have one."""
        may_act = ~self.rollout.in_flight & self.rollout.may_act()
        if self._of_batch > 1 and not self._of_recv:  # it acts as a whole
            may_act = np.repeat(may_act.reshape(-1, self._of_batch).all(1), self._of_batch)
        return np.flatnonzero(may_act)

    @property
    def parts(self) -> Sequence[tuple[int, int]]:
        """For each machine: how many environments it has, and how many of them one worker steps."""
        return self.pool.parts

    @property
    def in_flight(self) -> npt.NDArray[np.bool_]:
        """Whether an action has been sent that has not been answered, [N]."""
        return self.rollout.in_flight

    @property
    def num_in_flight(self) -> int:
        """Number of environments that have an action to apply."""
        return int(np.count_nonzero(self.rollout.in_flight))

    def act(self, envs: npt.NDArray[np.int64]) -> None:
        """Chooses the actions of `envs` [K] in one inference, and sends them."""
        slots = self.rollout.at[envs]
        nexts = self.rollout.start(envs)
        with self.timeline.span("infer"):
            self._refresh()
            self._actor.act(slots, nexts)
        self.rollout.note_acted(slots)
        self.pool.send(envs, slots, nexts)

    def play(self, env: int) -> None:
        """Has an environment whose worker holds the policy take as many steps as it may."""
        num_steps = self.rollout.burst(env)
        if num_steps > 0:
            self.pool.play(env, self.rollout.start_burst(env, min(num_steps, MOST_PLAYED)))

    def receive(self, least: int) -> None:
        """Blocks until `least` environments have replied, or something woke the pool; handles all replies."""
        waits_for = "simulate" if self._may_receive else "wait:learner"
        with self.timeline.span(waits_for):
            envs, said = self.pool.receive(least)
        if self.plays:
            for env, num_played in zip(envs.tolist(), said.tolist(), strict=True):
                self.rollout.finish_burst(env, num_played)
            return
        if not len(envs):
            return
        envs = np.sort(envs)
        slots, nexts = self.rollout.at[envs], self.rollout.next[envs]
        counts = self._actor.table["counts"][slots] if self._of_batch > 1 else None
        self._clock(envs, envs if counts is None or self._fills_places else envs[counts])
        cut = np.flatnonzero(self._actor.table["truncated"][slots])
        if len(cut):
            with self.timeline.span("infer"):
                self._actor.value_final(envs[cut], slots[cut], nexts[cut])
        if counts is not None:
            self.rollout.skip(envs[~counts])
            envs = envs[counts]
        self.rollout.finish(envs)

    def _clock(self, envs: npt.NDArray[np.int64], counted: npt.NDArray[np.int64]) -> None:
        """Notes that `envs` [K] have replied; the time of each of `counted` was that of a step."""
        now = time.perf_counter()
        carried = envs[self._carried[envs]]
        self._began_s[carried] = now
        self._carried[carried] = False
        self._last_reply_s[envs] = now
        self._num_replies[counted] += 1
        self._num_replies[carried] = 0

    def drain(self) -> None:
        """Blocks until no action is in flight, so that every env step is accounted for.

        What a pool has left, fewer environments than it answers for at a time, is given up: no answer can come.
        """
        while self._may_receive:
            self.receive(1)
        left = np.flatnonzero(self.rollout.in_flight)
        if len(left):
            self.rollout.skip(left)

    @property
    def _may_receive(self) -> bool:
        """Whether there is an answer to come."""
        if not self._of_recv:
            return self.num_in_flight > 0
        return bool((self.rollout.in_flight.reshape(-1, self._of_batch).sum(1) >= self._of_recv).any())
