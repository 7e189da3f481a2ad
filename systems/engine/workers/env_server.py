"""The environments of one machine, for a rank on another machine that acts for them: `Central` averaging.

    rank 0 --(actions; weights)--> environment server --(as on rank 0's machine)--> environment workers

The first rank of each machine but rank 0's is the server. Inference stays with the learner and observations go over the
network, as in SEED RL (Espeholt et al. 2020, section 3); where the policy acts in the workers, weights go one way and
whole trajectories the other, as in IMPALA (Espeholt et al. 2018, section 3).

One thread reads commands, has the workers (`pool.py`) carry them out and sends what came of them. Another receives
weights and writes them to the workers' shared memory. The rank's main thread does neither: it keeps step with the other
ranks. The first thread blocks until workers reply or commands come, and until the other side has taken replies; the
second blocks until weights come. The end of the connections frees both: the rank that acts ends the server in this way,
and so does the kernel when that rank's process dies. When a worker dies or stalls, the server sends the error to the
rank that acts, which raises it, and this process ends with the same error (`background.py`).
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlbench.harness.processes import process, raised
from rlbench.systems.choices.collect import MOST_PLAYED
from rlbench.systems.engine.wire import sockets
from rlbench.systems.engine.wire.commands import RESET
from rlbench.systems.engine.wire.errors import WorkerDied, WorkerStalled
from rlbench.systems.engine.workers import env_wire as wire
from rlbench.systems.engine.workers.acting_weights import SharedHalves
from rlbench.systems.engine.workers.background import Background
from rlbench.systems.engine.workers.env_client import Address

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from rlbench.systems.engine.workers.pool import WorkerPool
    from rlbench.systems.engine.workers.tables import SharedTable

ACCEPT_S = 300.0
"""Seconds in which the rank that acts must connect, and then send the first weights if any; else the run fails."""
LOOK_S = 0.5
HELLO_S = 20.0
"""Seconds in which the other end of a new connection must say who it is; else the connection is closed."""


class EnvServer:
    """Serves until the rank that acts ends the connection; E environments."""

    def __init__(
        self, pool: WorkerPool, table: SharedTable, shared: SharedTable | None, limit_s: float, error_path: Path
    ) -> None:
        """Listens.

        Args:
            pool: the machine's workers, before their first episodes; the server closes it.
            table: the pool's, with `rows_of(...)` slots for each environment.
            shared: the weights, where the workers act.
            limit_s: seconds for the rest of weights that have begun to come, and for sending an error.
            error_path: where this process leaves an error that its main thread does not notice.
        """
        self._pool, self._table, self._shared, self._limit_s = pool, table, shared, limit_s
        self._rows = wire.WireRows(table, acted=shared is not None)
        num_envs = pool.num_envs
        self._per_env = len(table["action"]) // num_envs
        self._at = np.arange(num_envs) * self._per_env
        self._doing = np.full(num_envs, wire.BEGIN)
        self._plays: dict[int, npt.NDArray[np.int64]] = {}
        self._error_path = error_path
        self._listener, self._host = sockets.listen()
        self._key = secrets.token_bytes(sockets.KEY_BYTES)
        self._connection: socket.socket | None = None
        self._has_weights = threading.Event()
        self._weights: Background | None = None
        self._thread = Background("environments", self._serve, self._say_why, error_path)

    def address(self, rank: int) -> Address:
        """The address at which rank 0 finds this server."""
        port = self._listener.getsockname()[1]
        return Address(rank, self._host, port, self._key, self._pool.envs_per_worker)

    def join(self) -> None:
        """Waits for the server's end; raises its exception if it raised one."""
        self._thread.join()

    def check(self) -> None:
        """Raises the server's exception if it raised one."""
        self._thread.check()

    def _serve(self) -> None:
        try:
            try:
                self._accept()
            finally:
                sockets.end(self._listener)
            assert self._connection is not None
            if self._weights is not None:
                self._await_first(self._weights)
            inbox = wire.Inbox(self._connection)
            self._pool.also_wake_for(self._connection.fileno())
            while True:
                envs, said = self._pool.receive(1)
                if self._weights is not None:
                    self._weights.check()
                if len(envs):
                    self._reply(envs, said)
                for message in inbox.read():
                    self._obey(message)
        except ConnectionError:
            pass  # the rank that acts is done, or gone
        if self._connection is not None:
            sockets.end(self._connection)
        self._pool.close()

    def _accept(self) -> None:
        """Waits for the connections of the rank that acts; closes any whose other end does not know the key."""
        purposes = {wire.STEPS} if self._shared is None else {wire.STEPS, wire.WEIGHTS_ALONE}
        deadline = time.monotonic() + ACCEPT_S
        while purposes:
            self._listener.settimeout(max(0.1, deadline - time.monotonic()))
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else short replies take 40 ms
            with suppress(OSError):
                hello = sockets.receive(connection, wire.HELLO.size, time.monotonic() + HELLO_S)
                key, purpose = wire.HELLO.unpack(hello)
                if secrets.compare_digest(key, self._key) and purpose in purposes:
                    purposes.remove(purpose)
                    self._open(connection, purpose)
                    continue
            connection.close()

    def _open(self, connection: socket.socket, purpose: int) -> None:
        if purpose == wire.STEPS:
            self._connection = connection
        else:
            # Only the other thread uses the connection for steps: it is woken, and says what has failed here.
            take = partial(self._take_weights, connection)
            self._weights = Background("weights", take, self._pool.wake, self._error_path)

    def _await_first(self, weights: Background) -> None:
        deadline = time.monotonic() + ACCEPT_S
        while not self._has_weights.wait(LOOK_S):
            weights.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no weights came within {ACCEPT_S:g} s")

    def _take_weights(self, connection: socket.socket) -> None:
        assert self._shared is not None
        halves = SharedHalves(self._shared)
        with suppress(ConnectionError):
            while True:
                message = wire.receive(connection, self._limit_s)
                if message.what == wire.STOP:
                    self._shared["stop"][0] = True
                else:
                    halves.write(torch.frombuffer(message.body, dtype=torch.float32), message.count)
                    self._has_weights.set()
        connection.close()

    def _obey(self, message: wire.WireMessage) -> None:
        size = 4 * message.count
        envs = np.frombuffer(message.body[:size], "<i4").astype(np.int64)
        self._doing[envs] = message.what
        if message.what == wire.BEGIN:
            self._pool.send(envs, np.full(len(envs), RESET), self._at[envs])
        elif message.what == wire.STEP:
            slots = self._at[envs]
            actions = self._table["action"]
            actions[slots] = np.frombuffer(message.body[size:], actions.dtype).reshape(len(slots), -1)
            self._pool.send(envs, slots, self._after(slots, 1))
        else:
            for env, num_steps in zip(envs.tolist(), np.frombuffer(message.body[size:], "<i4").tolist(), strict=True):
                slots = self._after(self._at[[env]], np.arange(num_steps + 1))
                self._plays[env] = slots
                self._pool.play(env, slots)

    def _after(self, slots: npt.NDArray[np.int64], num_steps: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
        """The slots `num_steps` further on, going round within each environment's slots."""
        first = slots // self._per_env * self._per_env
        after: npt.NDArray[np.int64] = first + (slots - first + num_steps) % self._per_env
        return after

    def _reply(self, envs: npt.NDArray[np.int64], said: npt.NDArray[np.int64]) -> None:
        doing = self._doing[envs]
        for what in np.unique(doing).tolist():
            of_kind = doing == what
            self._send(what, envs[of_kind], said[of_kind])

    def _send(self, what: int, envs: npt.NDArray[np.int64], said: npt.NDArray[np.int64]) -> None:
        assert self._connection is not None
        parts = [envs.astype("<i4").tobytes()]
        if what == wire.PLAY:
            plays = [self._plays.pop(env) for env in envs.tolist()]
            ends = list(zip(plays, said.tolist(), strict=True))
            steps = np.concatenate([slots[:n] for slots, n in ends])
            nexts = np.concatenate([slots[1 : n + 1] for slots, n in ends])
            self._at[envs] = [slots[n] for slots, n in ends]
            parts.append(said.astype("<i4").tobytes())
        else:
            steps, nexts = self._at[envs], said
            if what == wire.BEGIN:
                steps = steps[:0]
            self._at[envs] = said
        parts += self._rows.pack(envs, steps, nexts)
        # The rank that acts may learn meanwhile, for however long; if it dies, the connection ends.
        wire.send(self._connection, what, len(envs), parts, None)

    def _say_why(self) -> None:
        """Sends the error to the rank that acts, and ends the connection; called in the thread that has failed."""
        error = sys.exception()
        assert error is not None
        with suppress(OSError):  # the disk may be full
            process.leave_error(self._error_path, error)
        if self._connection is not None:
            is_workers = isinstance(error, WorkerDied | WorkerStalled)
            text = str(error) if is_workers else raised.whole(error)
            with suppress(OSError):
                stalled = isinstance(error, WorkerStalled)
                wire.send(self._connection, wire.FAILED, int(stalled), [text.encode()], self._limit_s)
            sockets.end(self._connection)


def rows_of(num_steps: int, *, acted: bool) -> int:
    """Slots that an environment of a server needs: the one where it stands, and those that one command leads to."""
    return 1 + (min(num_steps, MOST_PLAYED) if acted else 1)
