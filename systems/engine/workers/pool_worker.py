"""An environment worker that steps a pool of environments, some of which answer at a time. This module needs no torch.

It differs from `batch_worker.py` in that environments act by themselves: a command names those that have an action, and
the table says where each of them is. The worker has two threads, so that no action waits for answers to others:

    commands --> first thread: `send` --> the pool --> second thread: `recv` --> table, replies, for M environments

The first thread blocks on the command pipe; the rank frees it. The second one blocks until at least M environments are
in the pool, of which the first thread tells it, and then in `recv`, until M of them have answered, so never for an
answer that cannot come. Fewer than M stay in the pool, over the end of a rollout too, until the rank sends more; when
it sends no more, it gives them up (`Sampler.drain`), and nobody has counted them.

If the rank dies, the kernel ends this process with its fork server; if only its pipe ends, the first thread waits until
the second one has nothing to receive, and closes the pool. What either thread raises goes to a file for the rank, and
ends the process at once, as does whatever kills it; the rank notices that (`pool.py`), also while a pool does not
answer. Letters: B environments of the pool, M of an answer.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import numpy as np

from rlbench.harness.contract.envs import envs_per_recv, make_counted_pool
from rlbench.harness.metering.meter_file import meter_path
from rlbench.harness.processes import process
from rlbench.systems.engine.wire.commands import COMMAND, REPLIES_AT_ONCE, RESET, SEND
from rlbench.systems.engine.workers.batch_worker import BatchedWorker
from rlbench.systems.engine.workers.worker import WorkerSettings, error_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rlbench.harness.contract.envs import Batched
    from rlbench.harness.metering.batches.counted_pool import CountedPool

    Indices = NDArray[np.intp]


class PoolWorker(BatchedWorker):
    """Steps the one pool whose environments its commands name."""

    def __init__(self, settings: WorkerSettings, commands: int, replies: int) -> None:
        super().__init__(settings, commands, replies)
        self._of_recv = envs_per_recv(settings.scenario)
        self._pools: dict[int, CountedPool] = {}
        self._changed = threading.Condition()
        self._num_inside, self._is_closing = 0, False
        self._receiver: threading.Thread | None = None
        self._sending_s = 0.0
        """CPU time of the first thread; it alone writes it."""

    def _opened(self) -> Mapping[int, CountedPool]:
        return self._pools

    def serve(self) -> None:
        """Has the environments act that commands name, until the command pipe ends; then closes the pool."""
        while command := os.read(self._commands, COMMAND.size):
            first, what, num_ids = COMMAND.unpack(command)
            self._index = first
            if what == RESET:
                self._begin(first, 0)
            else:
                assert what == SEND, "a pool is told who acts"
                ids = np.frombuffer(os.read(self._commands, 4 * num_ids), dtype=np.int32).astype(np.intp)
                self._send(first, ids)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._receiver is not None:
            self._receiver.join()
        self._close()

    def _begin(self, index: int, slot: int) -> None:  # noqa: ARG002  the table has all slots
        seats = self._settings.seats[index - self._settings.first :][: self._size]
        meter = meter_path(self._settings.folder, seats[0].place.rank)
        scenario = cast("Batched", self._settings.scenario)
        pool = make_counted_pool(scenario, seats, self._settings.folder, meter, self._of_recv)
        self._pools[index] = pool
        pool.reset()
        for _ in range(self._size // self._of_recv):
            envs, given = pool.recv()
            nexts = self._next[index + envs]
            self._prev_action[nexts] = 0
            self._write_begun(nexts, given.starts, given.observation)
        process.note_shared_memory(self._settings.label, [os.getpid()])
        self._receiver = threading.Thread(target=self._receive_or_exit, args=(index, pool), daemon=True)
        self._receiver.start()
        self._reply(index + np.arange(self._size))

    def _send(self, first: int, ids: Indices) -> None:
        self._pools[first].send(self._to_env(self._action[self._at[first + ids]]), ids)
        self._sending_s = time.thread_time()
        with self._changed:
            self._num_inside += len(ids)
            self._changed.notify_all()

    def _receive_or_exit(self, first: int, pool: CountedPool) -> None:
        """What the second thread does."""
        try:
            self._receive(first, pool)
        except BaseException as error:  # noqa: BLE001  whatever a simulator raises goes to the rank with its traceback
            with suppress(OSError):  # the disk may be full
                process.leave_error(error_path(self._settings.folder, self._settings.label), error)
            os._exit(1)

    def _receive(self, first: int, pool: CountedPool) -> None:
        total_s, own_s = time.process_time(), self._own_s
        while self._await_enough():
            ids, given = pool.recv()
            envs = first + ids
            slots = self._at[envs]
            self._write_step(envs, slots, self._next[envs], self._action[slots], given)
            before_s, before_own_s = total_s, own_s
            total_s, own_s = time.process_time(), self._own_s
            waiting_s = own_s - before_own_s
            pool.used(waiting_s, max(0.0, total_s - before_s - waiting_s))
            self._reply(envs)

    @property
    def _own_s(self) -> float:
        """CPU time of the two threads; called by the second one."""
        return self._sending_s + time.thread_time()

    def _await_enough(self) -> bool:
        """Blocks until the pool has M environments to answer for, and takes them off; False when it is to be closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_inside >= self._of_recv or self._is_closing)
            if self._num_inside < self._of_recv:
                return False
            self._num_inside -= self._of_recv
            return True

    def _reply(self, envs: NDArray[np.int64]) -> None:
        """Says where environments stand now; a write is whole, since it has at most PIPE_BUF bytes."""
        replies = np.stack((envs, self._next[envs]), 1).astype(np.int32)
        with suppress(BrokenPipeError):  # the rank is gone; the kernel is about to end us anyway
            for at in range(0, len(replies), REPLIES_AT_ONCE):
                os.write(self._replies, replies[at : at + REPLIES_AT_ONCE].tobytes())
