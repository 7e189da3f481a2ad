"""Drives a rollout by hand, as a sampler would, and checks at every move that its slots are used rightly.

What a worker would write is a name for each observation: environment and number of env steps before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlbench.systems.engine.rollouts.rollout import Rollout

Step = Sequence[int]
"""Environment, slot."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An observation: the environment's `number`-th, from 0."""

    env: int
    number: int


class Driver:
    """Starts and finishes steps in random order.

    Environments of a batch, B of them, act and finish together. Episodes end at random, in a share `ends` of the steps;
    the step after that only begins the next one. With `comes` below 1 they are agents, who are away for a while then,
    but never all of a batch at once.
    """

    def __init__(
        self, rollout: Rollout, seed: int, *, of_batch: int = 1, ends: float = 0.0, comes: float = 1.0
    ) -> None:
        self.rollout = rollout
        self._of_batch, self._ends, self._comes = of_batch, ends, comes
        self._due = set[int]()
        self._ended = set[int]()
        """Slots of steps that ended an episode: what follows them is not needed for long."""
        self.num_skipped = 0
        self.rng = np.random.default_rng(seed)
        self.num_finished = 0
        self.at_slot = {int(slot): Seen(env, 0) for env, slot in enumerate(rollout.at)}
        self.in_use = set(map(int, rollout.at))
        """Slots that hold an observation which nobody has given back."""
        self.most_in_use = 0
        self._next_number = [0] * rollout.num_envs
        self._bursts: dict[int, list[int]] = {}

    def may_start(self) -> list[int]:
        """Environments that wait for an action and may have one."""
        may_act = ~self.rollout.in_flight & self.rollout.may_act()
        of_batches = may_act.reshape(-1, self._of_batch).all(1)
        waiting: list[int] = np.flatnonzero(np.repeat(of_batches, self._of_batch)).tolist()
        return waiting

    def some(self, envs: npt.ArrayLike) -> list[int]:
        """Some of these environments, in random order, batch by batch."""
        batches = self.rng.permutation(np.asarray(envs).reshape(-1, self._of_batch))
        chosen: list[int] = batches[: self.rng.integers(1, len(batches) + 1)].ravel().tolist()
        return chosen

    def start(self, envs: Sequence[int]) -> None:
        """Sends actions."""
        nexts = self.rollout.start(np.array(envs, dtype=np.int64))
        self.rollout.note_acted(self.rollout.at[envs])
        for env, slot in zip(envs, nexts.tolist(), strict=True):
            self._use(slot, Seen(env, self.at_slot[int(self.rollout.at[env])].number + (env not in self._due)))

    def start_burst(self, env: int) -> None:
        """Has an environment play by itself."""
        slots = self.rollout.start_burst(env, self.rollout.burst(env)).tolist()
        before = self.at_slot[slots[0]].number
        for played, slot in enumerate(slots[1:], start=1):
            self._use(slot, Seen(env, before + played))
        self._bursts[env] = slots

    def finish(self, envs: Sequence[int]) -> None:
        """Steps end, in this order; those first that only began an episode."""
        begun = [env for env in envs if env in self._due]
        counting = [env for env in envs if env not in self._due]
        if begun:
            self.in_use -= set(self.rollout.at[begun].tolist())
            self.rollout.skip(np.array(begun, dtype=np.int64))
            self.num_skipped += len(begun)
        self._due -= {env for env in begun if self.rng.random() < self._comes}
        slots = self.rollout.at[counting].tolist()
        self.rollout.finish(np.array(counting, dtype=np.int64))
        self.num_finished += len(counting)
        self._ended -= set(slots)
        if self._ends:
            for env, slot in zip(counting, slots, strict=True):
                if self.rng.random() < self._ends:
                    self._due.add(env)
                    self._ended.add(slot)
        if self._comes < 1:
            for batch in np.reshape(envs, (-1, self._of_batch)).tolist():
                self._due -= set(batch) if self._due.issuperset(batch) else set()

    def finish_burst(self, env: int, num_played: int) -> None:
        """An environment has played, perhaps less than it was told to."""
        slots = self._bursts.pop(env)
        self.rollout.finish_burst(env, num_played)
        self.in_use -= set(slots[num_played + 1 :])
        self.num_finished += num_played

    def burst_length(self, env: int) -> int:
        """Steps that an environment was told to play."""
        return len(self._bursts[env]) - 1

    def _use(self, slot: int, seen: Seen) -> None:
        assert slot not in self.in_use, f"slot {slot} is used twice: {self.at_slot[slot]} and {seen}"
        self.in_use.add(slot)
        self.at_slot[slot] = seen
        self.most_in_use = max(self.most_in_use, len(self.in_use))

    def fill(self, until: int | None = None) -> None:
        """Moves at random until the rollout is full, or has `until` samples and is cut."""
        rollout, rng = self.rollout, self.rng
        while not (rollout.is_full or (until is not None and rollout.num_samples >= until)):
            waiting, flying = self.may_start(), np.flatnonzero(rollout.in_flight)
            assert waiting or len(flying), "the rollout is stuck"
            if waiting and (not len(flying) or rng.random() < 0.6):
                self.start(self.some(waiting))
            else:
                self.finish(self.some(flying))

    def check_taken(self, steps: Iterable[Step]) -> None:
        """Steps that were taken follow, for each environment, those that were taken before; none is left out."""
        for env, slot in steps:
            assert self.at_slot[slot] == Seen(env, self._next_number[env])
            assert self.rollout.acted[slot]
            if slot not in self._ended:
                assert self.at_slot[int(self.rollout.follow[slot])] == Seen(env, self._next_number[env] + 1)
            self._next_number[env] += 1

    @property
    def num_taken(self) -> int:
        """Env steps taken so far."""
        return sum(self._next_number)

    def release(self, slots: Iterable[int]) -> None:
        """Gives slots back."""
        given = list(slots)
        assert len(set(given)) == len(given)
        assert set(given) <= self.in_use
        self.rollout.release(given)
        self.in_use -= set(given)
