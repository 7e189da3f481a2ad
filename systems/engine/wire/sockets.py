"""Sockets with deadlines: how questions and answers between ranks look on the wire.

A question is `QUESTION`, the name and the payload; an answer is `ANSWER` and what was answered. Deadlines are times of
`time.monotonic`. A call that passes its deadline raises TimeoutError; what is under way in the connection is then lost.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress

KEY_BYTES = 16
QUESTION = struct.Struct(f"<{KEY_BYTES}sIHQ")
"""Key of the run, rank that asks, length of the name, length of the payload."""
ANSWER = struct.Struct("<?Q")
"""Whether the question was answered; length of the answer, or of the error."""

Answer = bytes | bytearray


def listen() -> tuple[socket.socket, str]:
    """A socket on the interface that leads to the ranks' master, and the name or address at which others reach it."""
    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    family, _, _, _, address = socket.getaddrinfo(master, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing; chooses the interface
        host = str(probe.getsockname()[0])
    is_loopback = host == "::1" or host.startswith("127.")
    if is_loopback and int(os.environ["WORLD_SIZE"]) > int(
        os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
    ):
        # The master's own name often leads to its loopback interface, where other machines cannot reach it.
        return socket.create_server(("", 0), family=family, backlog=128), socket.gethostname()
    return socket.create_server((host, 0), family=family, backlog=128), host


def connect(host: str, port: int, deadline: float) -> socket.socket:
    """A connection to a rank's mailbox."""
    connection = socket.create_connection((host, port), timeout=_left(deadline))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def send(connection: socket.socket, data: Answer, deadline: float) -> None:
    """Sends all of the data; raises TimeoutError at the deadline."""
    connection.settimeout(_left(deadline))
    connection.sendall(data)  # its timeout is for all of the data


def receive(connection: socket.socket, size: int, deadline: float) -> bytearray:
    """Receives exactly `size` bytes; raises TimeoutError at the deadline, ConnectionError at the connection's end."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        connection.settimeout(max(0.0, deadline - time.monotonic()))
        try:
            count = connection.recv_into(view)  # what has come in time is taken, however late we are
        except BlockingIOError:
            raise TimeoutError("the time limit has passed") from None
        if not count:
            raise ConnectionResetError("the connection has ended")
        view = view[count:]
    return data


def _left(deadline: float) -> float:
    """Seconds until the deadline; raises TimeoutError when it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time limit has passed")
    return left


def end(connection: socket.socket) -> None:
    """Closes a socket that another thread may be waiting on."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
