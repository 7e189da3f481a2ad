"""What fills a batch: what all rollouts share, and those of `Fixed` and `Variable`.

A rollout hands out slots of the rank's table and says which steps are learned from. It knows nothing of processes, so
a test drives it by hand. An environment stands at a slot: the one that holds its latest observation. `start` says that
an action will be chosen there and where the next observation goes; `finish` says that this observation has arrived. A
step that is in flight when a rollout ends belongs to the next one (VER section 2.2).

The sampler calls `start`, `finish` and `may_act`; the learner calls `take` and `release`. They are one thread under
`Alternate`, and two under the other overlaps: so free slots are in a deque, to which Python appends and from which it
pops atomically. Nothing here blocks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """What is learned from in one go: runs, each of consecutive steps of one environment, as slots of the table."""

    runs: Sequence[npt.NDArray[np.int64]]
    """Stale runs first; none is empty."""
    envs: Sequence[int]
    """The environment of each run."""
    num_stale_runs: int = 0
    """How many runs, the first ones, were learned before; they fill a preempted rollout."""

    @property
    def num_samples(self) -> int:
        """Env steps, stale ones included."""
        return sum(map(len, self.runs))

    @property
    def num_stale(self) -> int:
        """Env steps that were learned before."""
        return sum(map(len, self.runs[: self.num_stale_runs]))

    @property
    def fresh_runs(self) -> Sequence[npt.NDArray[np.int64]]:
        """The runs that were never learned from."""
        return self.runs[self.num_stale_runs :]

    @property
    def fresh_envs(self) -> npt.NDArray[np.int64]:
        """The environment of each sample of `fresh_runs`, laid end to end, [S]."""
        envs = np.asarray(self.envs[self.num_stale_runs :], dtype=np.int64)
        return np.repeat(envs, np.array([len(run) for run in self.fresh_runs], dtype=np.int64))


def runs_of(steps: npt.NDArray[np.int64]) -> tuple[list[npt.NDArray[np.int64]], list[int]]:
    """A run for each environment that has steps [S, 2], in the order in which they ended, and these environments."""
    if not len(steps):
        return [], []
    by_env = steps[np.argsort(steps[:, 0], kind="stable")]
    envs, firsts = np.unique(by_env[:, 0], return_index=True)
    return np.split(by_env[:, 1], firsts[1:]), envs.tolist()


class Rollout:
    """Where each environment stands, and the slots that are free; N environments."""

    def __init__(self, num_envs: int, num_slots: int) -> None:
        self.num_envs = num_envs
        self.envs = np.arange(num_envs)
        self.at = np.arange(num_envs)
        """The slot at which each environment stands, [N]."""
        self.next = np.full(num_envs, -1)
        """Where the observation of a step in flight goes, [N]."""
        self.in_flight = np.zeros(num_envs, dtype=np.bool_)
        """Whether an action has been sent that has not been answered, [N]."""
        self.acted = np.zeros(num_slots, dtype=np.bool_)
        """Whether an action was chosen in the slot, and its value estimated, [slots]."""
        self.follow = np.zeros(num_slots, dtype=np.int64)
        """The slot of the observation that followed an action, [slots]; read where `acted`."""
        self._free = deque(range(num_envs, num_slots))
        self._bursts: dict[int, npt.NDArray[np.int64]] = {}

    def start(self, envs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Says that each of `envs` [K] will act where it stands; returns the slots of what will follow, [K]."""
        nexts = np.array([self._free.popleft() for _ in range(len(envs))], dtype=np.int64)
        slots = self.at[envs]
        self.acted[nexts] = False
        self.follow[slots] = nexts
        self.next[envs] = nexts
        self.in_flight[envs] = True
        return nexts

    def note_acted(self, slots: npt.NDArray[np.int64]) -> None:
        """Says that the actions in `slots` [K] were chosen, and that what the policy says of them is written.

        Not to be called earlier: another thread takes the value of an acted slot for that of what follows a run.
        """
        self.acted[slots] = True

    def finish(self, envs: npt.NDArray[np.int64]) -> None:
        """Says that the steps in flight of `envs` [K] have ended, in this order."""
        slots = self.at[envs]
        self.at[envs] = self.next[envs]
        self.in_flight[envs] = False
        self._count(envs, slots)

    def skip(self, envs: npt.NDArray[np.int64]) -> None:
        """Says that what was in flight of `envs` [K] is no env step; its slots are free.

        It only began an episode, or the agent was away.
        """
        slots = self.at[envs]
        self.acted[slots] = False
        self.at[envs] = self.next[envs]
        self.in_flight[envs] = False
        self._free.extend(slots.tolist())

    def start_burst(self, env: int, num_steps: int) -> npt.NDArray[np.int64]:
        """Begins T = `num_steps` steps that `env` takes by itself; returns their slots and the next one, [T + 1]."""
        new = [self._free.popleft() for _ in range(num_steps)]
        slots = np.array([self.at[env], *new], dtype=np.int64)
        self.acted[slots[1:]] = False
        self.follow[slots[:-1]] = slots[1:]
        self.in_flight[env] = True
        self._bursts[env] = slots
        return slots

    def finish_burst(self, env: int, num_played: int) -> None:
        """Says that an environment has taken `num_played` of its steps; frees the slots that it did not reach."""
        slots = self._bursts.pop(env)
        self._free.extend(slots[num_played + 1 :].tolist())
        self.acted[slots[:num_played]] = True
        self.at[env] = slots[num_played]
        self.in_flight[env] = False
        if num_played:
            self._count(np.full(num_played, env), slots[:num_played])

    def release(self, slots: Iterable[int]) -> None:
        """Frees slots whose steps are not needed any more."""
        self._free.extend(slots)

    def _count(self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> None:
        """Adds finished steps [K] to the rollout."""
        raise NotImplementedError

    def may_act(self) -> npt.NDArray[np.bool_]:
        """Which environments may take a step now, if they wait for an action, [N]."""
        raise NotImplementedError

    def burst(self, env: int) -> int:
        """Steps that an environment may take by itself now; `may_act` allows it at least one."""
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        """Whether the rollout has all its steps."""
        raise NotImplementedError

    @property
    def num_samples(self) -> int:
        """Finished env steps that nobody has taken."""
        raise NotImplementedError

    @property
    def num_places(self) -> int:
        """These, and what took a place of the rollout without being an env step."""
        return self.num_samples

    @property
    def waiting(self) -> npt.NDArray[np.int64]:
        """Those of each environment, [N]."""
        raise NotImplementedError

    @property
    def num_steps(self) -> int:
        """Steps that the rank has of each environment (the fewest, or the mean where they may differ)."""
        raise NotImplementedError

    def take(self) -> npt.NDArray[np.int64]:
        """Returns the rollout's steps [S, 2], full or not, as they ended: environment, slot; begins the next one."""
        raise NotImplementedError


class Gathered(Rollout):
    """Holds steps in the order in which they ended, until somebody takes them."""

    def __init__(self, num_envs: int, num_slots: int) -> None:
        super().__init__(num_envs, num_slots)
        self._arrived: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        """Environments and slots, [K] both, as they came: put together only once they are taken."""
        self._num_arrived = 0

    def _count(self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> None:
        self._arrived.append((envs, slots))
        self._num_arrived += len(envs)

    @property
    def _steps(self) -> npt.NDArray[np.int64]:
        if not self._arrived:
            return np.empty((0, 2), np.int64)
        envs, slots = zip(*self._arrived, strict=True)
        return np.stack((np.concatenate(envs), np.concatenate(slots)), 1)

    @property
    def num_samples(self) -> int:
        """Finished env steps."""
        return self._num_arrived

    @property
    def waiting(self) -> npt.NDArray[np.int64]:
        """Those of each environment."""
        return np.bincount(self._steps[:, 0], minlength=self.num_envs)

    @property
    def num_steps(self) -> int:
        """The mean over the environments, rounded down."""
        return self._num_arrived // self.num_envs

    def take(self) -> npt.NDArray[np.int64]:
        """All finished steps."""
        return self._take(self._num_arrived)

    def _take(self, most: int) -> npt.NDArray[np.int64]:
        """The first `most` finished steps; the others stay."""
        steps = self._steps
        self._arrived = [(steps[most:, 0], steps[most:, 1])]
        self._num_arrived = len(steps[most:])
        return steps[:most]


class FixedRollout(Gathered):
    """Every environment takes T places, each for a step or for what is none (`skip`), and then waits.

    Environments of a batch that end episodes have places of mere resets. Agents have places while they are away, all of
    a rollout's perhaps, but not all agents of an environment at once: as long as one takes a step, it has samples.
    """

    def __init__(self, num_envs: int, target_steps: int, *, ahead: int = 0, agents: int = 1) -> None:
        # Beside the rollouts, each environment needs a slot where it stands and one for its step in flight.
        super().__init__(num_envs, (target_steps * (1 + ahead) + 2) * num_envs)
        self.target_steps = target_steps
        self.taken = np.zeros(num_envs, dtype=np.int64)
        """Places of each environment that are filled, [N]."""
        self._skipped = np.zeros(num_envs, dtype=np.int64)
        self._agents = agents

    def _count(self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> None:
        super()._count(envs, slots)
        np.add.at(self.taken, envs, 1)

    def skip(self, envs: npt.NDArray[np.int64]) -> None:
        """It takes one of the T places, since environments of a batch, and agents of one, step together."""
        super().skip(envs)
        self.taken[envs] += 1
        self._skipped[envs] += 1

    def may_act(self) -> npt.NDArray[np.bool_]:
        """Those that have fewer than T steps, the one in flight included."""
        return self.taken + self.in_flight < self.target_steps

    def burst(self, env: int) -> int:
        """All steps that the environment still lacks."""
        return int(self.target_steps - self.taken[env])

    @property
    def is_full(self) -> bool:
        """True when every environment has taken T steps."""
        return bool((self.taken == self.target_steps).all())

    @property
    def num_places(self) -> int:
        """All that are filled."""
        return int(self.taken.sum())

    @property
    def num_steps(self) -> int:
        """Steps of the environment that has the fewest, without those that only began an episode.

        An environment with several agents has as many as any of them has places.
        """
        return int(self.taken.min() if self._agents > 1 else (self.taken - self._skipped).min())

    def take(self) -> npt.NDArray[np.int64]:
        """T steps of each environment, or what there is."""
        self.taken[:] = self._skipped[:] = 0
        return super().take()


class VariableRollout(Gathered):
    """Each environment may take any number of steps; steps count in the order in which they end."""

    def __init__(self, num_envs: int, target: int, *, ahead: int = 0) -> None:
        # Beside the rollouts: where each stands, its step in flight, and one that ended after the rollout was full.
        super().__init__(num_envs, target * (1 + ahead) + 3 * num_envs)
        self.target = target

    def may_act(self) -> npt.NDArray[np.bool_]:
        """All, until the rollout is full."""
        return np.full(self.num_envs, not self.is_full)

    @property
    def is_full(self) -> bool:
        """True when T * N steps have ended."""
        return self._num_arrived >= self.target

    def take(self) -> npt.NDArray[np.int64]:
        """The first T * N steps that ended, or all if there are fewer."""
        return self._take(self.target)
