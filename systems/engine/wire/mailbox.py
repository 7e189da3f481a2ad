"""Messages between ranks without a server in the middle: each rank asks any other, with a time limit on every question.

Every rank listens on its own TCP socket and announces its address through the run's store. A rank asks over one
connection per peer, made when first needed. Torch's TCPStore and gloo are not used for this: connecting to, reading
from or writing to a TCPStore whose process is stopped blocks without end whatever its timeout, and a receive of gloo's
that times out spoils every connection of the process.

Who writes: the owner publishes values; a new value replaces the last one of its name. Handlers, given at the start,
compute other answers. Who reads: one daemon thread for each connection answers a peer's questions, so handlers run in
these threads and lock what they share. What blocks: `ask`, never longer than the limit; a thread waits for the next
question, and at most the limit for the rest of one that has begun. What frees them: the answer, the limit, or the end
of the peer's process, which closes the connection. Shutdown: `close` closes all sockets, which ends all threads; none
keeps the process alive. A peer whose process dies is gone for good. A peer that is silent `MOST_SILENCES` times in a
row counts as gone too; it is tried again after `RETRY_S` seconds, then after twice that, and so on. Nothing is queued
here. Open a mailbox only after all child processes are forked: they would keep its sockets open.
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from rlbench.systems.engine.wire import sockets
from rlbench.systems.engine.wire.sockets import Answer

MOST_SILENCES = 3
RETRY_S = 30.0
MOST_BYTES = 1 << 34
Handler = Callable[[int, bytearray], bytes]
"""Answers one question, given the rank that asks and the payload; called in the threads of a mailbox."""


@dataclass(slots=True)
class _Peer:
    """What the owner knows of another rank."""

    host: str
    port: int
    connection: socket.socket | None = None
    num_silences: int = 0
    retry_at: float = 0.0
    retry_s: float = RETRY_S
    is_gone: bool = False


class Board(Protocol):
    """Texts that all ranks of a run share."""

    rank: int
    num_ranks: int

    def publish(self, key: str, text: str) -> None:
        """Leaves a text for all ranks; a key is published once."""

    def read(self, key: str) -> str:
        """The text that a rank has published, or will publish within the start limit."""


class Mailbox:
    """This rank's mailbox, and its way to the mailboxes of the others. One thread at a time may call `ask`."""

    def __init__(
        self, board: Board, handlers: Mapping[str, Handler], limit_s: float, vital: frozenset[int] = frozenset()
    ) -> None:
        """Opens the mailbox and waits until all ranks have opened theirs.

        Args:
            board: the texts that all ranks share.
            handlers: by the name of the question.
            limit_s: seconds for one question and its answer together.
            vital: ranks without which the run does not go on; the message about a loss differs.
        """
        self.rank, self.num_ranks, self._limit_s = board.rank, board.num_ranks, limit_s
        self._handlers, self._vital = handlers, vital
        self._published: dict[str, bytes] = {}
        self._closed = threading.Event()
        self.is_quiet = False
        """Whether to print no line about ranks that are gone: set once the run is over."""
        self._peers: dict[int, _Peer] = {}
        self._accepted: set[socket.socket] = set()
        self._lock = threading.Lock()
        if self.num_ranks == 1:
            return
        self._listener, host = sockets.listen()
        if self.rank == 0:
            board.publish("mailbox/key", secrets.token_hex(sockets.KEY_BYTES))
        self._key = bytes.fromhex(board.read("mailbox/key"))
        threading.Thread(target=self._accept, name="mailbox", daemon=True).start()
        board.publish(f"mailbox/{self.rank}", f"{host} {self._listener.getsockname()[1]}")
        for rank in range(self.num_ranks):
            if rank != self.rank:
                host, port = board.read(f"mailbox/{rank}").split()
                self._peers[rank] = _Peer(host, int(port))

    @property
    def gone(self) -> frozenset[int]:
        """The ranks that have died, or are silent and not to be tried again yet."""
        now = time.monotonic()
        return frozenset(rank for rank, peer in self._peers.items() if peer.is_gone and now < peer.retry_at)

    def publish(self, name: str, value: bytes) -> None:
        """Answers questions of that name with a value from now on."""
        self._published[name] = value

    def ask(self, rank: int, name: str, payload: bytes = b"") -> Answer | None:
        """The answer of a rank, empty where it has published nothing under the name; None when it gave none in time.

        Raises RuntimeError when the other rank's handler raised.
        """
        if rank == self.rank:
            return self._reply(rank, name, bytearray(payload))
        peer = self._peers[rank]
        if rank in self.gone:
            return None
        deadline = time.monotonic() + self._limit_s
        try:
            was_answered, answer = self._exchange(peer, name, payload, deadline)
        except ConnectionRefusedError:
            self._note_death(rank, peer)
            return None
        except TimeoutError:
            self._note_silence(rank, peer, f"no answer within {self._limit_s:g} s")
            return None
        except OSError as error:  # no route, a network that is down
            self._note_silence(rank, peer, str(error))
            return None
        peer.num_silences = 0
        if peer.is_gone:
            peer.is_gone, peer.retry_s = False, RETRY_S
            self._say(f"rank {rank} is back")
        if not was_answered:
            raise RuntimeError(f"rank {rank}: {answer.decode()}")
        return answer

    def close(self) -> None:
        """Ends all connections and threads."""
        self._closed.set()
        if self.num_ranks == 1:
            return
        sockets.end(self._listener)
        with self._lock:
            connections = list(self._accepted)
        for connection in connections:
            sockets.end(connection)
        for peer in self._peers.values():
            _drop(peer)

    def _exchange(self, peer: _Peer, name: str, payload: bytes, deadline: float) -> tuple[bool, Answer]:
        """Asks over the peer's connection, or over a new one if the old one was cut, which the peer may do.

        A question with a payload is asked once: the peer may have heard it, though its answer was cut off.
        """
        is_new = peer.connection is None
        try:
            connection = peer.connection = peer.connection or sockets.connect(peer.host, peer.port, deadline)
            label = name.encode()
            head = sockets.QUESTION.pack(self._key, self.rank, len(label), len(payload)) + label
            sockets.send(connection, head, deadline)
            sockets.send(connection, payload, deadline)
            was_answered, size = sockets.ANSWER.unpack(sockets.receive(connection, sockets.ANSWER.size, deadline))
            return was_answered, sockets.receive(connection, size, deadline)
        except OSError as error:
            _drop(peer)  # half a message may be under way in it
            if is_new or payload or not isinstance(error, ConnectionError):
                raise
        return self._exchange(peer, name, payload, deadline)

    def _note_silence(self, rank: int, peer: _Peer, why: str) -> None:
        peer.num_silences += 1
        if peer.num_silences < MOST_SILENCES:
            return
        peer.retry_at = time.monotonic() + peer.retry_s
        peer.retry_s *= 2
        if not peer.is_gone:
            peer.is_gone = True
            self._say_gone(rank, f"{why}, {MOST_SILENCES} times in a row")

    def _note_death(self, rank: int, peer: _Peer) -> None:
        peer.is_gone, peer.retry_at = True, float("inf")
        self._say_gone(rank, "its process has ended")

    def _say_gone(self, rank: int, why: str) -> None:
        self._say(f"rank {rank} is gone: {why}" + ("" if rank in self._vital else "; the run goes on without it"))

    def _say(self, what: str) -> None:
        if not self.is_quiet:
            sys.stderr.write(what + "\n")
            sys.stderr.flush()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed.is_set():
                    return
                self._closed.wait(self._limit_s)  # out of file descriptors, say: some may be free later
                continue
            with self._lock:
                self._accepted.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="mailbox", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Answers one peer until it, or this mailbox, ends the connection."""
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else short answers take 40 ms
            while not self._closed.is_set():
                connection.settimeout(None)
                first = connection.recv(1)
                if not first:
                    break
                deadline = time.monotonic() + self._limit_s
                rest = sockets.receive(connection, sockets.QUESTION.size - 1, deadline)
                key, rank, name_size, size = sockets.QUESTION.unpack(first + rest)
                if key != self._key or size > MOST_BYTES:
                    break  # not one of our ranks
                name = sockets.receive(connection, name_size, deadline).decode()
                payload = sockets.receive(connection, size, deadline)
                answer: Answer
                try:
                    was_answered, answer = True, self._reply(rank, name, payload)
                except Exception as error:  # noqa: BLE001  it is the asker's to raise
                    was_answered, answer = False, f"{type(error).__name__}: {error}".encode()
                deadline = time.monotonic() + self._limit_s
                sockets.send(connection, sockets.ANSWER.pack(was_answered, len(answer)), deadline)
                sockets.send(connection, answer, deadline)
                del payload, answer  # a connection at rest holds no weights
        with self._lock:
            self._accepted.discard(connection)
        connection.close()

    def _reply(self, rank: int, name: str, payload: bytearray) -> Answer:
        handler = self._handlers.get(name)
        return handler(rank, payload) if handler is not None else self._published.get(name, b"")


def _drop(peer: _Peer) -> None:
    if peer.connection is not None:
        peer.connection.close()
        peer.connection = None
