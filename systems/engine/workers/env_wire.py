"""The messages between the rank that acts and the environment servers of other machines: bytes of a connection.

    rank 0 -> server   BEGIN envs | STEP envs, actions | PLAY envs, numbers of steps    on one connection
    server -> rank 0   the same with what came of it: steps played, rows of the table | FAILED stalled or not, text
    rank 0 -> server   WEIGHTS version, parameters | STOP                               on another, where workers act

Environments are numbered within the server. All integers are little-endian; rows are sent as they lie in memory, so
the machines must have the same byte order, and the same code (the launch sees to that).
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.systems.engine.wire import sockets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rlbench.systems.engine.workers.tables import SharedTable

HELLO = struct.Struct(f"<{sockets.KEY_BYTES}sB")
"""Key of the server; what the connection is for."""
STEPS, WEIGHTS_ALONE = range(2)
HEAD = struct.Struct("<BIQ")
"""Kind of message; number of environments (WEIGHTS: their version; FAILED: 1 if stalled); bytes that follow."""
BEGIN, STEP, PLAY, FAILED, WEIGHTS, STOP = range(6)
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message, whole."""

    what: int
    count: int
    body: memoryview


def send(connection: socket.socket, what: int, count: int, parts: Sequence[bytes], limit_s: float | None) -> None:
    """Sends a message; raises TimeoutError when the other side has not taken all of it within `limit_s`."""
    connection.settimeout(limit_s)
    connection.sendall(b"".join((HEAD.pack(what, count, sum(map(len, parts))), *parts)))


def receive(connection: socket.socket, limit_s: float) -> WireMessage:
    """Waits for a message to begin, then `limit_s` for the rest; raises OSError if the time or the connection ends."""
    connection.settimeout(None)
    first = connection.recv(1)
    if not first:
        raise ConnectionResetError("the connection has ended")
    deadline = time.monotonic() + limit_s
    what, count, size = HEAD.unpack(first + sockets.receive(connection, HEAD.size - 1, deadline))
    return WireMessage(what, count, memoryview(sockets.receive(connection, size, deadline)))


class Inbox:
    """Takes messages from a connection as they become whole; never waits for one. For one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._begun = bytearray()

    def read(self) -> list[WireMessage]:
        """The messages that are whole now; raises OSError at the connection's end."""
        self._connection.settimeout(0)
        try:
            came = self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return []
        if not came:
            raise ConnectionResetError("the connection has ended")
        self._begun += came
        messages, at = [], 0
        while at + HEAD.size <= len(self._begun):
            what, count, size = HEAD.unpack_from(self._begun, at)
            end = at + HEAD.size + size
            if end > len(self._begun):
                break
            messages.append(WireMessage(what, count, memoryview(bytes(self._begun[at + HEAD.size : end]))))
            at = end
        del self._begun[:at]
        return messages


class WireRows:
    """The columns of a table that travel with steps, as bytes and back."""

    def __init__(self, table: SharedTable, *, acted: bool) -> None:
        """`acted`: whether the policy acts in the workers; then what it said travels too."""
        names = [column.name for column in table.columns]
        self._truncated = table["truncated"]
        of_step = ["reward", "terminated", "truncated", "episode", "counts"]
        of_next = ["prev_action", "episode_start", *(name for name in names if name.startswith("obs/"))]
        if acted:
            of_step += ["action", "log_prob", "value", "version", "bootstrap"]
            of_next += ["state"]
        self._of_step = [table[name] for name in of_step]
        self._of_next = [table[name] for name in of_next]
        self._final = [] if acted else [table[name] for name in names if name.startswith("final/")]

    def pack(
        self, envs: npt.NDArray[np.int64], steps: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]
    ) -> list[bytes]:
        """What steps gave, as bytes.

        Args:
            envs: [K]; the final observation of one goes along where the step at the same place truncated its episode.
                Read only where workers hold no policy.
            steps: slots of the steps, [S]; K where workers hold no policy, and 0 where environments begin.
            nexts: slots of what followed each, [S], or of the first observations, [K].
        """
        parts = [column[steps].tobytes() for column in self._of_step]
        parts += [column[nexts].tobytes() for column in self._of_next]
        if self._final and len(steps):
            cut = envs[self._truncated[steps]]
            if len(cut):
                parts += [column[cut].tobytes() for column in self._final]
        return parts

    def unpack(
        self,
        body: memoryview,
        envs: npt.NDArray[np.int64],
        steps: npt.NDArray[np.int64],
        nexts: npt.NDArray[np.int64],
    ) -> None:
        """Writes what `pack` made of as many environments and steps; raises ValueError if sizes differ."""
        for column in self._of_step:
            body = _read(body, column, steps)
        for column in self._of_next:
            body = _read(body, column, nexts)
        if self._final and len(steps):
            cut = envs[self._truncated[steps]]
            for column in self._final if len(cut) else ():
                body = _read(body, column, cut)
        if len(body):
            raise ValueError(f"{len(body)} bytes too many came from an environment server: ranks differ")


def _read(body: memoryview, column: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> memoryview:
    """Writes rows of a column from the start of `body`; returns the rest of `body`."""
    shape = (len(rows), *column.shape[1:])
    count = int(np.prod(shape))
    size = count * column.itemsize
    if size > len(body):
        raise ValueError("too few bytes came from an environment server: ranks differ")
    if count:
        column[rows] = np.frombuffer(body[:size], column.dtype).reshape(shape)
    return body[size:]
