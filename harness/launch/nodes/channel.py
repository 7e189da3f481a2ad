"""Messages between the head of a run and the agents on its nodes, over one TCP connection for each node.

A message is two lengths (`SIZES`), a header in JSON, and data. Both sides write whole messages. `receive` blocks until
there is a message or its limit has passed; `send` blocks while the other side does not read, for at most
`SEND_LIMIT_S`. When a process dies, the kernel closes its connection, and both raise `Closed` on the other side. A
machine that falls silent must be noticed from the time of its last message (`heard_at`). Everything that is read is
bounded, and is data: nothing in it is ever run.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

SIZES = struct.Struct("!II")
"""Lengths in bytes of the header, and of the data after it."""
LARGEST_HEADER = 4 * 2**20
"""Most bytes of a header; a traceback or the description of a machine takes thousands."""
LARGEST_DATA = 2**20
"""Most bytes of data in one message; files are sent in pieces."""
SEND_LIMIT_S = 20.0


class Closed(Exception):  # noqa: N818  the end of a connection, which need not be an error
    """The other side is gone, or what it sent is no message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message."""

    kind: str
    fields: dict[str, Any]
    data: bytes = b""


class Channel:
    """One end of a connection. One thread at a time may use it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(0.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # pings are timed
        self._socket = connection
        self._read = bytearray()
        self.heard_at = time.monotonic()
        """When something was last read."""

    def fileno(self) -> int:
        """The descriptor for `poll`; it is readable when something has come."""
        return self._socket.fileno()

    def send(self, kind: str, data: bytes = b"", **fields: Any) -> None:
        """Sends a message. Raises Closed."""
        header = json.dumps({"kind": kind, **fields}).encode()
        left = memoryview(SIZES.pack(len(header), len(data)) + header + data)
        deadline = time.monotonic() + SEND_LIMIT_S
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                if not self._waits(select.POLLOUT, deadline):
                    raise Closed(f"it has read nothing for {SEND_LIMIT_S:g} s") from None
            except OSError as error:
                raise Closed(error.strerror or str(error)) from None

    def receive(self, limit_s: float) -> Message | None:
        """The next message; None when there is none within `limit_s`. Raises Closed."""
        deadline = time.monotonic() + limit_s
        while True:
            if message := self._next():
                return message
            if not self._waits(select.POLLIN, deadline):
                return None
            try:
                piece = self._socket.recv(2**18)
            except BlockingIOError:
                continue
            except OSError as error:
                raise Closed(error.strerror or str(error)) from None
            if not piece:
                raise Closed("the connection was closed")
            self._read += piece
            self.heard_at = time.monotonic()

    def _waits(self, event: int, deadline: float) -> bool:
        """Waits until the connection is ready; False after the deadline. `select` takes no descriptor above 1023."""
        ready = select.poll()
        ready.register(self._socket, event)
        return bool(ready.poll(1000 * max(0.0, deadline - time.monotonic())))

    def _next(self) -> Message | None:
        if len(self._read) < SIZES.size:
            return None
        num_header, num_data = SIZES.unpack_from(self._read)
        if num_header > LARGEST_HEADER or num_data > LARGEST_DATA:
            raise Closed("it sent what is no message")
        end = SIZES.size + num_header
        if len(self._read) < end + num_data:
            return None
        try:
            fields = json.loads(self._read[SIZES.size : end])
            kind = fields.pop("kind")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise Closed("it sent what is no message") from None
        data = bytes(self._read[end : end + num_data])
        del self._read[: end + num_data]
        return Message(kind=str(kind), fields=fields, data=data)

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()
