"""The environment server of another machine, seen from the rank that acts for its environments.

The thread that samples sends commands, and writes what comes back to the rank's table. Where the policy acts in the
workers, another thread (`WeightsSender`) sends weights over a second connection. A command blocks while the server
takes nothing; an environment has at most one under way, so the sockets have room for them. `receive` never blocks: the
pool polls the connection, and a message that is not whole yet waits here. What frees the rank: a message of the server;
the end of its connection, which raises `WorkerDied` with the server's reason if it had time to give one; twice
`stall_s` without a message while an environment has something to do, which raises `WorkerStalled` (the server itself
looks for stalls after `stall_s`).
"""

from __future__ import annotations

import select
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.systems.engine.wire import sockets
from rlbench.systems.engine.wire.errors import WorkerDied, WorkerStalled
from rlbench.systems.engine.workers import env_wire as wire
from rlbench.systems.engine.workers.acting_weights import read_newest
from rlbench.systems.engine.workers.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from rlbench.systems.engine.wire.group import Group
    from rlbench.systems.engine.workers.tables import SharedTable


REASON_S = 1.0
"""Seconds to wait for what the server sent before its connection broke."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and how it has its environments stepped."""

    rank: int
    host: str
    port: int
    key: bytes
    envs_per_worker: int

    @classmethod
    def read(cls, group: Group, rank: int) -> Address:
        """The address that the server of a rank has published; waits for it."""
        host, port, key, envs_per_worker = group.read(f"environments/{rank}").split()
        return cls(rank, host, int(port), bytes.fromhex(key), int(envs_per_worker))

    def publish(self, group: Group) -> None:
        """Publishes the address for the rank that acts."""
        group.publish(f"environments/{self.rank}", f"{self.host} {self.port} {self.key.hex()} {self.envs_per_worker}")

    def connect(self, purpose: int, limit_s: float) -> socket.socket:
        """Opens a connection for `wire.STEPS` or `wire.WEIGHTS_ALONE`; raises RuntimeError when it cannot."""
        deadline = time.monotonic() + limit_s
        try:
            connection = sockets.connect(self.host, self.port, deadline)
            sockets.send(connection, wire.HELLO.pack(self.key, purpose), deadline)
        except OSError as error:
            where = f"the environment server on rank {self.rank} ({self.host}:{self.port})"
            raise RuntimeError(f"{where} cannot be reached: {error}") from error
        return connection


class EnvClient:
    """Sends commands to one server and takes its replies; the rank numbers the server's environments `envs`."""

    def __init__(
        self, address: Address, table: SharedTable, envs: range, stall_s: float, *, acted: bool, of_recv: int = 0
    ) -> None:
        """Connects.

        Args:
            address: the server's.
            table: the rank's.
            envs: how the rank numbers the environments.
            stall_s: seconds after which the server takes one of its workers for stalled.
            acted: whether the policy acts in the workers.
            of_recv: M, where each worker has a pool that answers for M of its environments at a time; else 0.
        """
        self._of_recv = of_recv
        self.envs, self.envs_per_worker, self.rank = envs, address.envs_per_worker, address.rank
        self._limit_s = 2 * stall_s
        self._connection = address.connect(wire.STEPS, self._limit_s)
        self._inbox = wire.Inbox(self._connection)
        self._rows = wire.WireRows(table, acted=acted)
        self._actions = table["action"]
        self._slots = np.zeros(len(envs), dtype=np.int64)
        self._nexts = np.zeros(len(envs), dtype=np.int64)
        self._plays: dict[int, npt.NDArray[np.int64]] = {}
        self._is_waiting = np.zeros(len(envs), dtype=np.bool_)
        self._sent_at, self._heard_at = np.zeros(len(envs)), 0.0

    def fileno(self) -> int:
        """The connection's file descriptor, for a poll."""
        return self._connection.fileno()

    def begin(self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> None:
        """Has each of `envs` [K], as the rank numbers them, begin its first episode; observations go to `slots`."""
        local = self._note(envs)
        self._nexts[local] = slots
        self._send(wire.BEGIN, local)

    def step(
        self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], slots_next: npt.NDArray[np.int64]
    ) -> None:
        """Has each of `envs` apply the action in its slot; what follows goes to its next slot. All are [K]."""
        local = self._note(envs)
        self._slots[local], self._nexts[local] = slots, slots_next
        self._send(wire.STEP, local, self._actions[slots])

    def play(self, env: int, slots: npt.NDArray[np.int64]) -> None:
        """Has an environment take T steps by itself, in `slots` [T + 1]."""
        local = self._note(np.array([env]))
        self._plays[int(local[0])] = slots
        self._send(wire.PLAY, local, np.array([len(slots) - 1], dtype="<i4"))

    def _note(self, envs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        local = envs - self.envs.start
        self._is_waiting[local] = True
        self._sent_at[local] = time.perf_counter()
        return local

    def _send(self, what: int, local: npt.NDArray[np.int64], *more: npt.NDArray[Any]) -> None:
        parts = [local.astype("<i4").tobytes(), *(array.tobytes() for array in more)]
        try:
            wire.send(self._connection, what, len(local), parts, self._limit_s)
        except TimeoutError as error:
            raise WorkerStalled(f"the environment server on rank {self.rank} takes no commands") from error
        except OSError:
            poll = select.poll()  # `select.select` takes no descriptor above 1,023
            poll.register(self._connection, select.POLLIN)
            while poll.poll(1e3 * REASON_S):
                self.receive()  # until its reason comes, or the end
            raise

    def receive(self) -> list[npt.NDArray[np.int32]]:
        """Writes to the table what has come; returns (environment, next slot or steps played) pairs, [K, 2] each.

        Raises WorkerDied when the server or one of its workers has ended, WorkerStalled when one has stalled.
        """
        try:
            messages = self._inbox.read()
        except OSError as error:
            raise WorkerDied(f"the environment server on rank {self.rank} has ended") from error
        self._heard_at = time.perf_counter()  # also where a large message is not whole yet
        return [self._take(message) for message in messages]

    def _take(self, message: wire.WireMessage) -> npt.NDArray[np.int32]:
        if message.what == wire.FAILED:
            kind = WorkerStalled if message.count else WorkerDied
            raise kind(bytes(message.body).decode(errors="replace"))
        size = 4 * message.count
        local = np.frombuffer(message.body[:size], "<i4").astype(np.int64)
        body = message.body[size:]
        envs = local + self.envs.start
        nexts = said = self._nexts[local]
        steps = self._slots[local]
        if message.what == wire.BEGIN:
            steps = steps[:0]
        elif message.what == wire.PLAY:
            said = np.frombuffer(body[:size], "<i4").astype(np.int64)
            body = body[size:]
            plays = [self._plays.pop(env) for env in local.tolist()]
            steps = np.concatenate([slots[:n] for slots, n in zip(plays, said.tolist(), strict=True)])
            nexts = np.concatenate([slots[1 : n + 1] for slots, n in zip(plays, said.tolist(), strict=True)])
        self._rows.unpack(body, envs, steps, nexts)
        self._is_waiting[local] = False
        return np.stack([envs, said], axis=1).astype(np.int32)

    def look_for_stalls(self, now: float) -> None:
        """Raises WorkerStalled when the server was silent for twice `stall_s` while an environment had work to do."""
        late = self._is_waiting & (np.maximum(self._sent_at, self._heard_at) < now - self._limit_s)
        if self._of_recv:  # a pool answers for no fewer
            late = late.reshape(-1, self.envs_per_worker).sum(1) >= self._of_recv
        if late.any():
            raise WorkerStalled(
                f"the environment server on rank {self.rank} has said nothing for {self._limit_s:g} s, nor why"
            )

    def close(self) -> None:
        """Ends the connection, and with it the server."""
        sockets.end(self._connection)


class WeightsSender:
    """A thread that sends the newest weights to servers whose workers act; it skips weights that are outdated."""

    def __init__(
        self,
        servers: Sequence[Address],
        shared: SharedTable,
        limit_s: float,
        on_failure: Callable[[], None],
        error_path: Path,
    ) -> None:
        """Connects and begins; `shared` has the columns of `weight_columns`."""
        self._shared, self._limit_s = shared, limit_s
        self._connections = {server.rank: server.connect(wire.WEIGHTS_ALONE, limit_s) for server in servers}
        self._changed = threading.Condition()
        self._is_newer, self._is_closing = False, False
        self._thread = Background("weights", self._run, on_failure, error_path)

    def wake(self) -> None:
        """Says that there are newer weights; any thread may call it."""
        with self._changed:
            self._is_newer = True
            self._changed.notify_all()

    def close(self) -> None:
        """Has the actors end what they play, waits for the thread and ends the connections."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        for connection in self._connections.values():
            sockets.end(connection)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_newer or self._is_closing)
                self._is_newer = False
                if self._is_closing:
                    break
            version, copy = self._newest()
            self._send(wire.WEIGHTS, version, [copy])
        self._send(wire.STOP, 0, [])

    def _send(self, what: int, version: int, parts: Sequence[bytes]) -> None:
        for rank, connection in self._connections.items():
            try:
                wire.send(connection, what, version, parts, self._limit_s)
            except OSError as error:
                raise WorkerDied(f"the environment server on rank {rank} takes no weights: {error}") from error

    def _newest(self) -> tuple[int, bytes]:
        copies: list[bytes] = []
        version = read_newest(self._shared, lambda half: copies.append(half.astype("<f4").tobytes()))
        return version, copies[-1]
