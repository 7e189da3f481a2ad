"""The engine's own code on virtual time: what a run would leave whose processes and messages cost nothing.

Ranks, their second threads and their environment workers are tasks of one clock (`virtual_time.py`). They run what real
ones run: the rank loop, collectors, rollouts, monitors, learner, averagers, workers, environments, meters and emulated
GPUs, with real weights. Only a rank's means are others (`systems/engine/rank/means.py`): workers without pipes, ranks
without connections, tasks for threads. So every moment that is left is one that the profile gives.

The clock alone comes in by `time.perf_counter` and `time.sleep` of the standard library. Who reads it is not the engine
alone but meters, counted environments, emulated GPUs and scenarios, which anybody writes and which get a seat: a clock
would be a field of the contract that only this file sets.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

from rlbench.harness.contract.device import Place
from rlbench.harness.devices.emulated_gpu import EmulatedGpu
from rlbench.systems.engine.rank.means import Means
from rlbench.systems.engine.wire.commands import PLAY, RESET
from rlbench.systems.engine.wire.links import Links
from rlbench.systems.engine.workers.batch_worker import BatchWorker
from rlbench.systems.engine.workers.worker import Worker, WorkerSettings
from tests.systems.engine.cells import run_with
from tests.systems.engine.ranks import Run
from tests.systems.model.virtual_time import Queue, VirtualTime

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.harness.contract.device import Seat
    from rlbench.harness.contract.system import Context
    from rlbench.harness.plan.cells import Cell
    from rlbench.systems.engine.wire.group import Group
    from rlbench.systems.engine.workers.tables import SharedTable

Command = tuple[int, int, Any]
"""Environment, slot of the action (or `RESET`, or `PLAY`), slot of what follows (or all of them)."""


class Pool:
    """Stands in for `WorkerPool`: real workers, each a task; commands and replies take no time."""

    def __init__(
        self,
        clock: VirtualTime,
        context: Context,
        table: SharedTable,
        seats: list[Seat],
        *,
        envs_per_worker: int = 1,
        workers_per_process: int = 1,
        envs_per_batch: int = 1,
        priority: object = None,
        acting: Any = None,
    ) -> None:
        del workers_per_process, priority
        self._clock = clock
        self._tables = [table] if acting is None else [table, acting.weights]
        self.envs_per_batch = envs_per_batch
        self._batch_at, self._batch_next = table["batch/at"], table["batch/next"]
        self.envs_per_worker, self.parts = envs_per_worker, [(len(seats), envs_per_worker)]
        self._replies: list[tuple[int, int]] = []
        self._is_woken = False
        self._queues: list[Queue[Command]] = []
        for first in range(0, len(seats), envs_per_worker):
            settings = WorkerSettings(
                scenario=context.scenario,
                seats=tuple(seats[first : first + envs_per_worker]),
                first=first,
                folder=Path(context.folder),
                table=table,
                commands=(),
                replies=None,
                envs_per_batch=envs_per_batch,
                acting=acting,
            )
            queue = Queue[Command](clock)
            self._queues.append(queue)
            worker = (Worker if envs_per_batch == 1 else BatchWorker)(settings, 0, 0)
            clock.start(partial(self._serve, worker, queue), context.place.rank)

    def _serve(self, worker: Worker, queue: Queue[Command]) -> None:
        while command := queue.get():
            env, slot, said = command
            if slot == PLAY:
                assert worker._player is not None
                said = worker._player.play(env, said)
            elif slot == RESET:
                worker._begin(env, said)
            else:
                worker.step(env, slot, said)
            if self.envs_per_batch == 1:
                self._replies.append((env, said))
                continue
            of_batch = slice(env, env + self.envs_per_batch)
            said = self._batch_next[of_batch].tolist()
            self._replies += list(zip(range(env, env + self.envs_per_batch), said, strict=True))

    def begin(self, slots: npt.NDArray[np.int64]) -> None:
        """All environments begin their first episodes."""
        envs = np.arange(len(slots))
        self.send(envs, np.full(len(envs), RESET), slots)
        self._clock.wait(lambda: len(self._replies) == len(envs))
        self._replies.clear()

    def send(
        self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], slots_next: npt.NDArray[np.int64]
    ) -> None:
        """Commands, in this order."""
        if self.envs_per_batch > 1:
            self._batch_at[envs], self._batch_next[envs] = slots, slots_next
            is_first = envs % self.envs_per_batch == 0
            envs, slots, slots_next = envs[is_first], slots[is_first], slots_next[is_first]
        for command in zip(envs.tolist(), slots.tolist(), slots_next.tolist(), strict=True):
            self._queues[command[0] // self.envs_per_worker].put(command)

    def play(self, env: int, slots: npt.NDArray[np.int64]) -> None:
        """Has an environment take steps by itself."""
        self._queues[env // self.envs_per_worker].put((env, PLAY, slots.astype(np.int32)))

    def wake(self) -> None:
        """Makes `receive` return."""
        self._is_woken = True

    def receive(self, least: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """All replies, as soon as there are so many, or it is woken."""
        self._clock.wait(lambda: len(self._replies) >= least or self._is_woken)
        self._is_woken = False
        got = np.array(self._replies, dtype=np.int64).reshape(-1, 2)
        self._replies.clear()
        return got[:, 0], got[:, 1]

    def close(self, grace_s: float = 0.0) -> None:
        """Ends the workers, and gives back what a process would with its end."""
        del grace_s
        for queue in self._queues:
            queue.put(None)
        while self._tables:
            self._tables.pop().close()


class Ranks:
    """Stands in for the transports of all ranks, and for their store."""

    def __init__(self, clock: VirtualTime, num_ranks: int) -> None:
        self._clock, self._num_ranks = clock, num_ranks
        self._counters: dict[str, int] = defaultdict(int)
        self._met: dict[int, dict[int, torch.Tensor]] = defaultdict(dict)
        self._num_met: dict[int, int] = defaultdict(int)
        self.mailboxes: dict[int, Mailbox] = {}
        self.store = self

    def join(self, _: Place) -> Ranks:
        """When all have come."""
        self.close()
        return self

    def _meet(self, brought: torch.Tensor) -> list[torch.Tensor]:
        """What all ranks have brought, when all have come."""
        rank = self._clock.task.rank
        brought_by = self._met[self._num_met[rank]]
        self._num_met[rank] += 1
        brought_by[rank] = brought.detach().clone()
        self._clock.wait(lambda: len(brought_by) == self._num_ranks)
        return [brought_by[rank] for rank in range(self._num_ranks)]

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """The sum."""
        tensor.copy_(torch.stack(self._meet(tensor)).sum(0))

    def broadcast(self, tensor: torch.Tensor) -> None:
        """What rank 0 has."""
        tensor.copy_(self._meet(tensor)[0])

    def close(self) -> None:
        """When all have come."""
        self._meet(torch.zeros(0))

    def add(self, key: str, amount: int) -> int:
        """A counter of the store."""
        self._counters[key] += amount
        return self._counters[key]

    def delete_key(self, key: str) -> None:
        """Forgets a counter."""
        self._counters.pop(key, None)


class Mailbox:
    """Stands in for the mailbox of a rank: questions are answered at once."""

    gone: frozenset[int] = frozenset()
    is_quiet = False

    def __init__(
        self,
        ranks: Ranks,
        group: Group,
        handlers: Mapping[str, Callable[[int, bytearray], bytes]],
        limit_s: float,
        vital: frozenset[int] = frozenset(),
    ) -> None:
        del limit_s, vital
        self._ranks, self._rank, self._handlers = ranks, group.rank, handlers
        assert isinstance(group._device, EmulatedGpu)
        self._network = group._device.costs.network
        self._published: dict[str, bytes] = {}
        ranks.mailboxes[group.rank] = self

    def publish(self, name: str, value: bytes) -> None:
        """Answers questions of that name with a value from now on."""
        self._published[name] = value

    def ask(self, rank: int, name: str, payload: bytes = b"") -> bytes:
        """The answer of a rank."""
        if name == "progress":  # the engine has the profile's network carry weights alone
            time.sleep(2 * self._network.latency_s)
        box = self._ranks.mailboxes[rank]
        handler = box._handlers.get(name)
        return box._published.get(name, b"") if handler is None else handler(self._rank, bytearray(payload))

    def close(self) -> None:
        """It may be asked on."""


class Promise(Future[Any]):
    """What some work will give."""

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__()
        self._clock = clock

    def result(self, timeout: float | None = None) -> object:
        """What it has given, as soon as it has."""
        self._clock.wait(self.done)
        return super().result(timeout)


class Background:
    """Stands in for the thread beside a rank's main one."""

    def __init__(self, clock: VirtualTime, name: str, work: Callable[[], None], *_: object) -> None:
        del name
        self._clock, self._task = clock, clock.start(work, clock.task.rank)

    def join(self) -> None:
        """Until it has ended."""
        self._clock.wait(lambda: self._task.is_done)


class Executor:
    """Stands in for an executor of one thread."""

    def __init__(self, clock: VirtualTime, *_: object) -> None:
        self._clock = clock

    def submit(self, work: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Begins some work, which `result` of what is returned waits for."""
        future = Promise(self._clock)
        self._clock.start(lambda: future.set_result(work(*arguments)), self._clock.task.rank)
        return future

    def shutdown(self) -> None:
        """Nothing is under way."""


class Condition:
    """Stands in for `threading.Condition` between a rank's two threads."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        """One task at a time runs anyway."""

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def notify_all(self) -> None:
        """Whoever waits is looked after by the clock."""

    def wait_for(self, predicate: Callable[[], object]) -> None:
        """Until it holds."""
        self._clock.wait(lambda: bool(predicate()))


class NoRequests:
    """Stands in for what listens to signals: a task is no process."""

    sender = None

    def listen(self) -> None:
        """Nobody tells a task to stop."""

    take = listen


class NoDeadline:
    """Stands in for a deadline: predictions have none."""

    def __init__(self, *_: object) -> None:
        pass

    def end(self) -> None:
        """It has not begun."""


def means_on(clock: VirtualTime, num_ranks: int) -> Means:
    """All of the above, for the ranks of one run; each has as much of what it replaces as the engine calls."""
    ranks = Ranks(clock, num_ranks)
    between: dict[str, Any] = {
        "transport": ranks.join,
        "mailbox": partial(Mailbox, ranks),
        "executor": partial(Executor, clock),
    }
    stand_ins: dict[str, Any] = {
        "pool": partial(Pool, clock),
        "links": Links(**between),
        "background": partial(Background, clock),
        "condition": partial(Condition, clock),
        "requests": NoRequests,
        "deadline": NoDeadline,
    }
    return Means(**stand_ins)


@contextmanager
def on_the_clock_of(clock: VirtualTime) -> Iterator[None]:
    """Whoever reads or awaits a moment does so on that clock; see above."""
    num_threads = torch.get_num_threads()
    with patch.object(time, "perf_counter", lambda: clock.now_s), patch.object(time, "sleep", clock.sleep):
        yield
    torch.set_num_threads(num_threads)


def run_virtually(folder: Path, cell: Cell) -> Run:
    """Runs all ranks of a cell, in a new folder."""
    folder.mkdir()
    (folder / "cell.json").write_text(cell.to_json())
    clock = VirtualTime()
    means = means_on(clock, cell.gpus)
    with on_the_clock_of(clock):
        for rank in range(cell.gpus):
            place = Place(rank=rank, num_ranks=cell.gpus, local_rank=rank)
            clock.start(partial(run_with, means, folder, place), rank)
        clock.run()
    assert threading.active_count() < 100, "tasks end with their run"
    return Run(folder)
