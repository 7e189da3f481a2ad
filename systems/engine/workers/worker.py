"""An environment worker: steps environments, one after the other. This module needs no torch.

A worker is a process, or one of several threads of a process where steps sleep instead of computing (`serving.py`). It
blocks on its own pipe, from which it reads commands (environment, slot of the action, slot of what follows). It reads
the action and writes observation, reward and flags in the shared table, then writes a reply (environment, slot) to the
pipe that all workers of the rank share. Where the policy acts in the workers (`systems.engine.workers.acting_worker`,
which does import torch), a command gives the slots of many steps, and the reply says how many were played. A reply is 8
bytes, far under PIPE_BUF, so replies never mix; at most one per environment is under way, so the pipe cannot fill. End
of file on the command pipe ends the worker. If the rank is killed, the kernel kills the fork server's children with it
(harness/processes/process.py). Whatever an environment raises, even `SystemExit`, goes to a file for the rank, with the
environment's number, and ends the process with all of its workers; what `close` raises becomes a remark of the run.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbench.harness.contract.envs import make_counted_env
from rlbench.harness.metering.counted import CountedEnv, shown
from rlbench.harness.metering.meter_file import meter_path
from rlbench.harness.processes import process, raised, remarks
from rlbench.systems.engine.wire.commands import COMMAND, PLAY, REPLY, RESET
from rlbench.systems.spaces.actions import layout_of
from rlbench.systems.spaces.observations import Leaf, leaves_of

if TYPE_CHECKING:
    from rlbench.harness.contract.device import Seat
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.metering.batches.counted_agents import CountedAgents
    from rlbench.harness.metering.batches.counted_batch import CountedBatch
    from rlbench.harness.metering.batches.counted_pool import CountedPool
    from rlbench.systems.choices.collect import Priority
    from rlbench.systems.engine.workers.tables import SharedTable

MOST_SQUARES = 8192
"""Most numbers of one dot product: OpenBLAS starts threads for more than 10,000."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSettings:
    """What the workers of a process need to begin."""

    scenario: Scenario
    seats: tuple[Seat, ...]
    first: int
    """The number that the rank gives the first of the seats; the others follow."""
    folder: Path
    table: SharedTable
    commands: tuple[Any, ...]
    """Read end of each worker's command pipe, as `multiprocessing.reduction.DupFd` gives it."""
    replies: Any
    """Write end of the reply pipe."""
    priority: Priority | None = None
    envs_per_batch: int = 1
    """More than 1: commands are for whole batches of environments (`systems.engine.workers.batch_worker`)."""
    acting: Any = None
    """`systems.engine.workers.acting_worker.Acting` of a worker that holds the policy."""

    @property
    def label(self) -> str:
        """The name of this process in files and errors."""
        return f"rank{self.seats[0].place.rank}-env{self.seats[0].index}"


def error_path(folder: Path, label: str) -> Path:
    """Where a process leaves the exception that ended it."""
    return folder / f"error-{label}.json"


Column = tuple[Leaf, Callable[[Any], Any], NDArray[Any], tuple[int, ...], np.dtype[Any]]
"""Where leaves of observations are written: the leaf, what finds it, the rows, and the shape and the dtype of one."""


class Worker:
    """Steps the environments that its commands name, which are among the seats of its process."""

    def __init__(self, settings: WorkerSettings, commands: int, replies: int) -> None:
        self._settings = settings
        self._table = settings.table
        self._commands, self._replies = commands, replies
        self._envs: dict[int, CountedEnv] = {}
        self._index: int | None = None
        self._rested_s = time.thread_time()
        """CPU time of this thread when it last came back from a simulator, and what resets have taken since."""
        seats = dict(enumerate(settings.seats, start=settings.first))
        self._player = None if settings.acting is None else settings.acting.open(self._table, seats, self.step)
        leaves = leaves_of(settings.scenario.observation_space)
        self._to_env = layout_of(settings.scenario).to_env
        # Looked up once: a lookup takes as long as writing a number.
        self._action, self._reward, self._episode = (self._table[name] for name in ("action", "reward", "episode"))
        self._ends = self._table["terminated"], self._table["truncated"]
        self._prev_action, self._episode_start = self._table["prev_action"], self._table["episode_start"]
        # A choice is one number: taking a row of one for it would double the time of a lookup.
        self._rows, self._rows_before = self._action, self._prev_action
        self._of_row: Callable[[Any], Any] = self._to_env
        space = settings.scenario.action_space
        if isinstance(space, gymnasium.spaces.Discrete):
            self._rows, self._rows_before = self._action[:, 0], self._prev_action[:, 0]
            self._of_row = _chooser(int(space.start))
        self._observations = self._columns("obs", leaves)
        self._final = self._columns("final", leaves)

    def _columns(self, what: str, leaves: Iterable[Leaf]) -> list[Column]:
        columns = [(leaf, self._table[f"{what}/{leaf.key}"]) for leaf in leaves]
        return [(leaf, _finder(leaf), column, column.shape[1:], column.dtype) for leaf, column in columns]

    @property
    def environment(self) -> int | None:
        """The number of the environment that the latest command was for."""
        return None if self._index is None else self._number(self._index)

    def _number(self, index: int) -> int:
        """The number of an environment among those of the run."""
        return self._seat(index).global_index

    def _seat(self, index: int) -> Seat:
        return self._settings.seats[index - self._settings.first]

    def serve(self) -> None:
        """Answers commands until the command pipe ends, then closes the environments."""
        while command := os.read(self._commands, COMMAND.size):
            index, slot, slot_next = COMMAND.unpack(command)
            self._index = index
            if slot == PLAY:
                assert self._player is not None, "the policy is the rank's"
                slots = np.frombuffer(os.read(self._commands, 4 * slot_next), dtype=np.int32)
                slot_next = self._player.play(index, slots)
            elif slot == RESET:
                self._begin(index, slot_next)
            else:
                self.step(index, slot, slot_next)
            try:
                os.write(self._replies, REPLY.pack(index, slot_next))
            except BrokenPipeError:
                return  # the rank is gone; the kernel is about to end us anyway
        self._close()

    def _close(self) -> None:
        """Closes each environment, even if closing another one raised: the run is over and does not depend on it."""
        for index, env in self._opened().items():
            try:
                env.close()
            except BaseException as error:  # noqa: BLE001  whatever a simulator raises
                what = f"environment {self._number(index)} raised {raised.in_a_line(error)} when it was closed"
                remarks.leave(self._settings.folder, self._settings.label, what)
                with suppress(OSError):
                    sys.stderr.write(f"{what}\n{raised.whole(error)}")

    def _opened(self) -> Mapping[int, CountedEnv | CountedAgents | CountedBatch | CountedPool]:
        """What there is to close, by the number of its first environment."""
        return self._envs

    def _begin(self, index: int, slot: int) -> None:
        seat = self._seat(index)
        meter = meter_path(self._settings.folder, seat.place.rank)
        env = make_counted_env(self._settings.scenario, seat, self._settings.folder, meter)
        self._envs[index] = env
        self._write_observation(self._observations, slot, env.reset(seed=seat.seed))
        self._rested_s = time.thread_time()
        self._start_episode(slot)
        process.note_shared_memory(self._settings.label, [os.getpid()])

    def step(self, index: int, slot: int, slot_next: int) -> None:
        """Applies the action in `slot` to an environment, and writes what follows to `slot_next`."""
        env = self._envs[index]
        row = self._rows[slot]
        before_s = time.thread_time()
        observation, reward, terminated, truncated, info = env.step(self._of_row(row))
        after_s = time.thread_time()
        if self._player is None:  # where the policy acts here, it is in that time
            env.used(before_s - self._rested_s, after_s - before_s)
        self._rested_s = after_s
        self._reward[slot] = reward
        are_terminated, are_truncated = self._ends
        are_terminated[slot] = terminated
        are_truncated[slot] = truncated and not terminated
        if terminated or truncated:
            self._episode[slot] = info["episode"]
            if truncated:
                self._write_observation(self._final, index, observation)
            before_s = time.thread_time()
            observation = env.reset()
            self._rested_s += time.thread_time() - before_s  # a reset is no part of the next answer
            self._start_episode(slot_next)
        else:
            self._rows_before[slot_next] = row
            self._episode_start[slot_next] = False
        self._write_observation(self._observations, slot_next, observation)

    def _start_episode(self, slot: int) -> None:
        self._prev_action[slot] = 0
        self._episode_start[slot] = True

    def _write_observation(self, columns: list[Column], row: int, observation: Any) -> None:
        for leaf, find, column, shape, dtype in columns:
            try:
                value = np.asarray(find(observation))
            except (LookupError, TypeError):
                raise ValueError(_without(leaf, observation)) from None
            if value.shape != shape:
                raise ValueError(f"observation {leaf.key!r} has shape {value.shape}: the scenario states {shape}")
            if value.dtype is not dtype:
                value = _narrowed(leaf.key, value, dtype)
            if value.dtype.kind == "f" and not _is_finite(value):
                raise ValueError(f"observation {leaf.key!r} holds {value[~np.isfinite(value)][0]}: it must be finite")
            column[row] = value


def _chooser(start: int) -> Callable[[Any], int]:
    """What the environment gets for a choice, as `ActionLayout.to_env` has it."""
    return (lambda number: int(number) + start) if start else int


def _finder(leaf: Leaf) -> Callable[[Any], Any]:
    """What finds a leaf in an observation; quicker than `Leaf.read` where it is an entry of a Dict."""
    return itemgetter(leaf.path[0]) if len(leaf.path) == 1 else leaf.read


def _without(leaf: Leaf, observation: object) -> str:
    """What is wrong with an observation that gives nothing for a leaf."""
    if isinstance(observation, Mapping):
        return f"the observation has no {leaf.key!r}: the scenario states one; it has {shown(list(observation))}"
    kind = "dict" if isinstance(leaf.path[0], str) else "tuple"
    return f"the observation is {shown(observation)}: it must be a {kind} with {leaf.key!r}"


def _narrowed(key: str, value: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Converts a value to the dtype that the scenario states: without loss, or by rounding floats that it can hold.

    Raises ValueError for all else, so that no number silently becomes another one.
    """
    if np.can_cast(value.dtype, dtype, "safe"):
        return value
    if value.dtype.kind != "f" or dtype.kind != "f":
        raise ValueError(f"observation {key!r} has dtype {value.dtype}: the scenario states {dtype}")
    largest = np.finfo(dtype).max
    if (np.isfinite(value) & (np.abs(value) > largest)).any():
        found = value[np.abs(value) > largest][0]
        raise ValueError(f"observation {key!r} holds {found}, {dtype} holds at most {largest:.4g}")
    return value


def _is_finite(value: NDArray[np.floating[Any]]) -> bool:
    """Whether all numbers are finite.

    Their sum of squares is finite then, unless one of them is huge; it takes a third of the time of looking at each.
    For more than `MOST_SQUARES` numbers BLAS would use threads of its own.
    """
    flat = value.ravel()
    if flat.size <= MOST_SQUARES and math.isfinite(flat.dot(flat)):
        return True
    return bool(np.isfinite(value).all())
