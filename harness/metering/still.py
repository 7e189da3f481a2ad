"""Work that nothing learned changes: actions that are drawn from seeds, and hashes that say what environments did.

Under a protocol of still work the policy acts and learns at full cost, but each environment applies the actions of a
list that its seed draws, over and over. What it does depends on its seed and its number of steps alone, so two runs of
a cell do the same work, whoever of them learns more. The hash of an environment, or of an agent, begins with its list
of actions, and each step takes it on over the reward and the end. As runs seldom end after as many steps, it is kept
at marks: after 2^k and 3 * 2^(k - 1) steps. Two runs are compared at the last mark that both have reached.

The process that steps an environment writes its marks, into a file of the rank that the first such process makes, and
the others find: a row of words of 8 bytes for each environment, or agent, of the rank. They are read when the run has
ended. Nothing blocks; a process that dies leaves the marks that it had reached. Letters: B environments, or agents of
one, that a call steps; K of them.
"""

from __future__ import annotations

import copy
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.metering.counted import CountedEnv

if TYPE_CHECKING:
    import gymnasium
    import numpy.typing as npt

    from rlbench.harness.metering.meter_file import Block

    Ints = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]
    Index = slice | npt.NDArray[np.intp]

NUM_ACTIONS = 509
"""Length of the list; a prime, so that it is hardly ever in step with the episodes."""
APART = 61
"""By how many actions neighbouring environments of one call are shifted against each other."""
MARKS = (1, *(steps for octave in range(1, 49) for steps in (2**octave, 3 * 2 ** (octave - 1))))
"""Steps after which the hash is kept: 1, 2, 3, 4, 6, 8, 12, ... They end at 4 x 10^14, as tables hold numbers up to
10^15: an environment that makes a million steps a second gets there in 13 years."""
ALL_MARKS = np.array(MARKS)
FACTOR, ENDS, MASK = 0xFF51AFD7ED558CCD, 0x9E3779B97F4A7C15, (1 << 64) - 1
"""A step makes x ^ x >> 32 of the hash h; x = (h ^ the reward's bits ^ (1 + 2 terminated + truncated) ENDS) FACTOR."""
AS_FLOAT, AS_WORD = struct.Struct("<d"), struct.Struct("<Q")
KEPT = (1 << 49) - 1
"""The bits of a hash that are kept: numbers below 10^15, as in all tables; 0 is no mark, and is kept as 1."""


def marks_path(folder: Path, rank: int) -> Path:
    """The file of a rank."""
    return folder / f"work-rank{rank}.bin"


def open_marks(path: Path, num_envs: int) -> Ints:
    """The marks of a rank's environments, to be written, [num_envs, marks]; 0 where none was reached.

    Raises OSError if the disk has no room for them.
    """
    with path.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * num_envs * len(MARKS))
    return np.memmap(path, np.int64, "r+", shape=(num_envs, len(MARKS)))


def read_marks(path: Path) -> list[tuple[int, int, int]]:
    """Environment of the rank, steps and hash of each mark that was reached; none without the file."""
    if not path.exists():
        return []
    marks = np.fromfile(path, np.int64)
    table = marks[: len(marks) // len(MARKS) * len(MARKS)].reshape(-1, len(MARKS))
    return [(env, MARKS[mark], int(table[env, mark])) for env, mark in np.argwhere(table).tolist()]


class ActionList:
    """The actions that environments of a space apply in turn."""

    def __init__(self, space: gymnasium.Space[Any], seed: int) -> None:
        """Draws them; what gymnasium raises for a space from which it cannot draw is raised."""
        from gymnasium.spaces import Discrete
        from gymnasium.vector.utils import concatenate, create_empty_array

        own = copy.deepcopy(space)
        own.seed(seed)
        drawn = [own.sample() for _ in range(NUM_ACTIONS)]
        self._space = own
        empty: Any = create_empty_array(own, NUM_ACTIONS)
        self._batch: Any = concatenate(own, drawn, empty)
        self.actions = [int(each) for each in drawn] if isinstance(space, Discrete) else drawn
        self.hash = zlib.crc32(repr(own.to_jsonable(drawn)).encode())

    def rows(self, places: Ints) -> Any:
        """The actions at places [K] of the list, batched as `gymnasium.vector` has them."""
        return _rows(self._space, self._batch, places)


def _rows(space: gymnasium.Space[Any], batch: Any, places: Ints) -> Any:
    from gymnasium.spaces import Dict, Tuple

    if isinstance(space, Dict):
        return {name: _rows(part, batch[name], places) for name, part in space.items()}
    if isinstance(space, Tuple):
        return tuple(_rows(part, of_part, places) for part, of_part in zip(space, batch, strict=True))
    return batch[places] if isinstance(batch, np.ndarray) else tuple(batch[place] for place in places)


class StillSteps:
    """A base, before that of an environment: applies the actions of its list instead of those that it gets."""

    def hold(self, space: gymnasium.Space[Any], seed: int, marks: Ints) -> None:
        """Draws the list, before the first step; `marks` is its row of the file."""
        drawn = ActionList(space, seed)
        self._actions, self._hash = drawn.actions, drawn.hash
        self._marks, self._next, self._num_steps = marks, 0, 0

    def step(self, action: Any) -> Any:
        """Applies the next action of the list instead of the policy's."""
        del action
        answer = super().step(self._actions[self._num_steps % NUM_ACTIONS])  # type: ignore[misc]
        self._num_steps += 1
        self._did(self._num_steps, answer[1], terminated=answer[2], truncated=answer[3])
        return answer

    def _did(self, steps: int, reward: float, *, terminated: bool, truncated: bool) -> None:
        """Takes the hash on over a step, after which there are so many."""
        (bits,) = AS_WORD.unpack(AS_FLOAT.pack(reward))
        word = ((self._hash ^ bits ^ ((1 + 2 * terminated + truncated) * ENDS & MASK)) * FACTOR) & MASK
        self._hash = word ^ word >> 32
        if steps == MARKS[self._next]:
            self._marks[self._next] = self._hash & KEPT or 1
            self._next += 1


class StillEnv(StillSteps, CountedEnv):
    """An environment of one of our systems that does still work."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        block: Block,
        episodes_fd: int,
        environment: int,
        seed: int,
        marks: Ints,
    ) -> None:
        """As `CountedEnv`; `marks` is its row of the file."""
        super().__init__(env, block, episodes_fd, environment, seed)
        self.hold(env.action_space, seed, marks)


class StillRows:
    """The same for B environments that a call steps, or B agents of one."""

    def __init__(self, space: gymnasium.Space[Any], seed: int, marks: Ints) -> None:
        """`marks` are their rows of the file."""
        self._list = ActionList(space, seed)
        num = len(marks)
        self._shift = APART * np.arange(num)
        self._hashes = self._list.hash ^ np.arange(num, dtype=np.uint64)
        self._marks, self._next = marks, np.zeros(num, np.int64)

    def actions(self, steps: Ints, of: Index = slice(None)) -> Any:
        """The batched actions of environments `of`, an index of K, after so many steps of each, [K]."""
        return self._list.rows((steps + self._shift[of]) % NUM_ACTIONS)

    def each(self, steps: Ints) -> list[Any]:
        """The action of each after so many steps of each, [B]."""
        return [self._list.actions[place] for place in ((steps + self._shift) % NUM_ACTIONS).tolist()]

    def did(self, steps: Ints, of: npt.NDArray[np.intp], rewards: Floats, terminated: Mask, truncated: Mask) -> None:
        """Takes the hashes of environments `of` [K] on over a step, after which each has so many; all are [K]."""
        ends = (1 + 2 * terminated.astype(np.uint64) + truncated) * np.uint64(ENDS)
        words = (self._hashes[of] ^ rewards.view(np.uint64) ^ ends) * np.uint64(FACTOR)
        self._hashes[of] = words = words ^ words >> np.uint64(32)
        if (at := steps == ALL_MARKS[self._next[of]]).any():
            marked = of[at]
            self._marks[marked, self._next[marked]] = np.maximum(words[at] & np.uint64(KEPT), 1)
            self._next[marked] += 1
