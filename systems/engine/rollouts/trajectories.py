"""`Trajectories` of T steps, learned in batches of a stated number of env steps (Sample Factory section 3.1; IMPALA).

There are two kinds of rollout. Under `Alternate` and `OneAhead` it is a quota: environments step until a batch is
there, in whole trajectories or not. Nothing is left in flight, so all samples of a batch were acted with the same
weights. Under `Continuous` it is a stream:

The sampler's thread adds trajectories as they become whole; the learner's thread takes batches of them. `take_batch`
blocks until there is a batch; the sampler's next trajectory frees it. The sampler never blocks here, but `may_act` lets
no environment begin a trajectory while `limit` env steps wait, so the queue is bounded. The learner's next `take_batch`
frees such environments: it calls `on_room`, so that a sampler that waits for replies looks again. `stop`, from any
thread, makes `take_batch` return no batch. If either thread raises, `stop` is called.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from rlbench.systems.engine.rollouts.rollout import Experience, Gathered, Rollout

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


class QuotaRollout(Gathered):
    """Environments step until the batch is there; a step starts only when the batch has room for it."""

    def __init__(self, num_envs: int, trajectory_steps: int, batch: int, *, ahead: int = 0) -> None:
        super().__init__(num_envs, batch * (1 + ahead) + 2 * num_envs)
        self.trajectory_steps, self.batch = trajectory_steps, batch
        self._taken = np.zeros(num_envs, dtype=np.int64)

    def _count(self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> None:
        super()._count(envs, slots)
        np.add.at(self._taken, envs, 1)

    def may_act(self) -> npt.NDArray[np.bool_]:
        """As many as there is room for, those with the fewest steps first."""
        bursts = sum(len(slots) - 1 for slots in self._bursts.values())
        room = self.batch - self._num_arrived - (bursts or int(self.in_flight.sum()))
        allowed = np.zeros(self.num_envs, dtype=np.bool_)
        waiting = np.flatnonzero(~self.in_flight)
        fewest_first = np.argsort(self._taken[waiting], kind="stable")
        allowed[waiting[fewest_first[: max(room, 0)]]] = True
        return allowed

    def burst(self, env: int) -> int:
        """The rest of the trajectory, as far as there is room for it beside those under way."""
        under_way = sum(len(slots) - 1 for slots in self._bursts.values())
        room = self.batch - self._num_arrived - under_way
        return min(int(self.trajectory_steps - self._taken[env] % self.trajectory_steps), room)

    @property
    def is_full(self) -> bool:
        """True when all steps of the batch have ended."""
        return self._num_arrived >= self.batch

    def take(self) -> npt.NDArray[np.int64]:
        """All steps of the batch."""
        self._taken[:] = 0
        return super().take()


class StreamRollout(Rollout):
    """A queue of whole trajectories, from which the learner takes batches; full only once it is stopped."""

    def __init__(self, num_envs: int, trajectory_steps: int, batch: int, limit: int) -> None:
        under_way = num_envs * (trajectory_steps + 2)
        # All environments may begin a trajectory while the queue is one step short of the limit.
        waiting = limit + num_envs * trajectory_steps
        super().__init__(num_envs, under_way + waiting + batch + trajectory_steps)
        self.trajectory_steps, self.batch, self.limit = trajectory_steps, batch, limit
        self.on_room: Callable[[], None] = lambda: None
        """Called by the learner's thread when environments may begin trajectories again."""
        self.on_discard: Callable[[int, npt.NDArray[np.int64]], None] = lambda _env, _slots: None
        """Called by the learner's thread with an environment and the slots of its steps that are discarded, [K], before
        these are free."""
        self.changed = threading.Condition()
        """The condition on which the learner's thread waits; set, like `on_room`, before either thread begins."""
        self._partial = np.zeros((num_envs, trajectory_steps), np.int64)
        self._lengths = np.zeros(num_envs, np.int64)
        """Steps of each environment's trajectory that is under way, [N]; their slots are in the row of `_partial`."""
        self._whole: deque[tuple[int, npt.NDArray[np.int64]]] = deque()
        self._num_waiting = 0
        self._stopped = False

    def _count(self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> None:
        if len(envs) > 1 and envs[0] == envs[1]:  # of one environment that has played by itself
            for slot in slots:
                self._count(envs[:1], slot[None])
            return
        self._partial[envs, self._lengths[envs]] = slots
        self._lengths[envs] += 1
        whole = envs[self._lengths[envs] == self.trajectory_steps]
        if not len(whole):
            return
        with self.changed:
            self._whole.extend(zip(whole.tolist(), self._partial[whole], strict=True))
            self._num_waiting += whole.size * self.trajectory_steps
            self.changed.notify_all()
        self._lengths[whole] = 0

    def may_act(self) -> npt.NDArray[np.bool_]:
        """All, but for those that would begin a trajectory while the queue is at its limit; none when stopped."""
        if self._stopped:
            return np.zeros(self.num_envs, dtype=np.bool_)
        if self._num_waiting < self.limit:
            return np.ones(self.num_envs, dtype=np.bool_)
        return self._lengths > 0

    def burst(self, env: int) -> int:
        """The rest of the trajectory."""
        return int(self.trajectory_steps - self._lengths[env])

    @property
    def is_full(self) -> bool:
        """True when the stream was stopped."""
        return self._stopped

    @property
    def num_samples(self) -> int:
        """Env steps that nobody has taken: in the queue, and in trajectories that are under way."""
        return self._num_waiting + int(self._lengths.sum())

    @property
    def waiting(self) -> npt.NDArray[np.int64]:
        """Those of each environment; nobody may add or take any meanwhile."""
        counts = self._lengths.copy()
        for env, run in self._whole:
            counts[env] += len(run)
        return counts

    @property
    def num_steps(self) -> int:
        """0: nobody preempts a stream."""
        return 0

    def stop(self) -> None:
        """Lets no environment begin another step, and has `take_batch` return at once."""
        with self.changed:
            self._stopped = True
            self.changed.notify_all()

    def take_batch(self, versions: npt.NDArray[np.int64], oldest: int) -> tuple[Experience | None, int]:
        """Blocks until there is a batch; returns it (None when stopped) and how many samples were discarded.

        Args:
            versions: the policy version of each slot, [slots].
            oldest: samples of versions below it are discarded: their lag would be above the limit.
        """
        runs: list[npt.NDArray[np.int64]] = []
        envs: list[int] = []
        missing, num_discarded = self.batch, 0
        while missing:
            taken = self._pop()
            if taken is None:
                for env, run in zip(reversed(envs), reversed(runs), strict=True):
                    self._put_back(env, run)  # these samples count as in flight again
                return None, num_discarded
            env, run = taken
            kept = run[versions[run] >= oldest]
            too_old = len(run) - len(kept)
            if too_old:
                self.on_discard(env, run[:too_old])
                self._free.extend(run[:too_old].tolist())
                num_discarded += too_old
            if len(kept) > missing:
                self._put_back(env, kept[missing:])
                kept = kept[:missing]
            if len(kept):
                runs.append(kept)
                envs.append(env)
                missing -= len(kept)
        return Experience(runs=runs, envs=envs), num_discarded

    def _pop(self) -> tuple[int, npt.NDArray[np.int64]] | None:
        with self.changed:
            self.changed.wait_for(lambda: self._whole or self._stopped)
            if self._stopped:
                return None
            env, run = self._whole.popleft()
            was_held_back = self._num_waiting >= self.limit
            self._num_waiting -= len(run)
            has_room = self._num_waiting < self.limit
        if was_held_back and has_room:
            self.on_room()
        return env, run

    def _put_back(self, env: int, run: npt.NDArray[np.int64]) -> None:
        with self.changed:
            self._whole.appendleft((env, run))
            self._num_waiting += len(run)
