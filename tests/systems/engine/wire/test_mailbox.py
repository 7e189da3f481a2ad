from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.contract.device import Place
from rlbench.systems.engine.wire import sockets
from rlbench.systems.engine.wire.group import Group
from rlbench.systems.engine.wire.mailbox import MOST_SILENCES, Handler, Mailbox
from tests.systems.engine.averaging.offices import ALONE, run_losing
from tests.systems.engine.ranks import run_ranks

LARGE = 17_000_000
SILENT_S = 2.0
"""Less, and a rank that is only slow would be taken for a stopped one."""


class Board(Group):
    """Several ranks in one process, which read each other's texts."""

    def __init__(self, rank: int, num_ranks: int, texts: dict[str, str]) -> None:
        super().__init__(ALONE)
        self.rank, self.num_ranks, self._texts = rank, num_ranks, texts

    def publish(self, key: str, text: str) -> None:
        self._texts[key] = text

    def read(self, key: str) -> str:
        return self._texts[key]


def open_first(
    monkeypatch: pytest.MonkeyPatch,
    texts: dict[str, str],
    handlers: Mapping[str, Handler] | None = None,
    limit_s: float = 30.0,
) -> Mailbox:
    """The mailbox of rank 0 of two, where rank 1 has announced itself in `texts`."""
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    return Mailbox(Board(0, 2, texts), handlers or {}, limit_s)


def open_both(monkeypatch: pytest.MonkeyPatch, handlers: Mapping[str, Handler]) -> tuple[Mailbox, Mailbox]:
    """Two ranks' mailboxes; rank 0 has the handlers and is the one to be asked."""
    texts = {"mailbox/1": "127.0.0.1 1"}
    first = open_first(monkeypatch, texts, handlers)
    return first, Mailbox(Board(1, 2, texts), {}, 30.0)


def exchange(folder: Path) -> None:
    """On each of 2 ranks: a small value, a large one, a handler, and a name that is not there."""
    place = Place.from_environment()
    group = Group(place)
    other = 1 - place.rank
    mailbox = Mailbox(group, {"double": lambda rank, data: bytes(data) * 2 + bytes([rank])}, 60.0)
    mailbox.publish("name", b"first")
    mailbox.publish("name", f"rank {place.rank}".encode())
    mailbox.publish("large", bytes([place.rank]) * LARGE)
    group.sum(np.zeros(1))
    assert mailbox.ask(other, "name") == f"rank {other}".encode()
    assert mailbox.ask(place.rank, "name") == f"rank {place.rank}".encode()
    assert mailbox.ask(other, "large") == bytes([other]) * LARGE
    assert mailbox.ask(other, "double", b"ab" * LARGE) == b"ab" * LARGE * 2 + bytes([place.rank])
    assert mailbox.ask(other, "nothing") == b""
    assert mailbox.gone == frozenset()
    group.sum(np.zeros(1))
    mailbox.close()
    (folder / f"done-{place.rank}").touch()
    group.close()


def lose(folder: Path, number: int) -> None:
    """On each of 3 ranks: rank 2 is lost; the others ask it until it counts as gone, then each other."""
    place = Place.from_environment()
    group = Group(place)
    mailbox = Mailbox(group, {}, 60.0)
    mailbox.publish("name", bytes([place.rank]))
    group.sum(np.zeros(1))
    assert mailbox.ask((place.rank + 1) % 3, "name") == bytes([(place.rank + 1) % 3])
    group.sum(np.zeros(1))
    if place.rank == 2:
        os.kill(os.getpid(), number)
    if number == signal.SIGSTOP:  # a rank that is only slow is not to be lost
        mailbox._limit_s = SILENT_S
    answers = 0
    while 2 not in mailbox.gone:  # a signal takes a moment to arrive
        answers += mailbox.ask(2, "name") is not None
    assert mailbox.ask(2, "name") is None
    mailbox._limit_s = 60.0
    assert mailbox.ask(1 - place.rank, "name") == bytes([1 - place.rank])
    (folder / f"done-{place.rank}").touch()
    while not (folder / f"done-{1 - place.rank}").exists():
        time.sleep(0.01)
    mailbox.close()
    group.leave()


def lose_killed(folder: Path) -> None:
    """As `lose`, by kill -9."""
    lose(folder, signal.SIGKILL)


def lose_stopped(folder: Path) -> None:
    """As `lose`, by a stop from which it does not wake."""
    lose(folder, signal.SIGSTOP)


def test_what_came_in_time_is_taken_however_late_one_looks() -> None:
    """Who had no core at the deadline does not take the other for silent; where nothing has come the time is over."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"answer")
        assert sockets.receive(ours, 6, time.monotonic() - 1) == b"answer"
        with pytest.raises(TimeoutError):
            sockets.receive(ours, 1, time.monotonic() - 1)


def test_values_and_handlers_answer(tmp_path: Path) -> None:
    """A rank gets the last value of a name, whatever its size, what a handler returns, and nothing for no name."""
    run_ranks(exchange, 2, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"done-0", "done-1"}


def test_a_killed_rank_is_gone_and_the_others_go_on(tmp_path: Path) -> None:
    """A killed rank is noticed at once, each other rank says so in one line, and they still reach each other."""
    for output in run_losing(lose_killed, 3, 2, tmp_path).values():
        assert output.count("rank 2 is gone: its process has ended; the run goes on without it") == 1
        assert output.count("is gone") == 1


def test_a_stopped_rank_is_gone_and_the_others_go_on(tmp_path: Path) -> None:
    """A stopped rank costs each other rank a few time limits, then one line, and they still reach each other."""
    for output in run_losing(lose_stopped, 3, 2, tmp_path).values():
        assert output.count(f"rank 2 is gone: no answer within {SILENT_S:g} s, 3 times in a row") == 1
        assert output.count("is gone") == 1


def test_a_silent_rank_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that is silent too often is not asked for a while; one that answers then counts as there again."""
    silent = socket.create_server(("127.0.0.1", 0))
    first = open_first(monkeypatch, {"mailbox/1": f"127.0.0.1 {silent.getsockname()[1]}"}, limit_s=0.05)
    for _ in range(MOST_SILENCES):
        assert first.gone == frozenset()
        assert first.ask(1, "name") is None
    assert first.gone == {1}
    assert first.ask(1, "name") is None
    second, other = open_both(monkeypatch, {})  # where rank 1 is from now on
    second.publish("name", b"here")
    peer = first._peers[1]
    peer.port, peer.retry_at, first._limit_s = second._listener.getsockname()[1], 0.0, 30.0
    first._key = second._key
    assert first.ask(1, "name") == b"here"
    assert first.gone == frozenset()
    assert [line[:14] for line in capsys.readouterr().err.splitlines()] == ["rank 1 is gone", "rank 1 is back"]
    silent.close()
    for mailbox in (first, second, other):
        mailbox.close()


def test_strangers_get_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that does not know the run's key, or says less than a question, is closed without a word."""
    handled: list[bytes] = []

    def note(rank: int, data: bytearray) -> bytes:  # noqa: ARG001
        handled.append(bytes(data))
        return b"answer"

    first, second = open_both(monkeypatch, {"name": note})
    head = sockets.QUESTION.pack(bytes(16), 1, 4, 2) + b"name" + b"ab"
    for said in (head, b"GET / HTTP/1.1\r\n\r\n" * 4):
        with socket.create_connection(first._listener.getsockname(), timeout=30) as stranger:
            stranger.sendall(said)
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    assert handled == []
    assert second.ask(0, "name", b"ab") == b"answer"
    for mailbox in (first, second):
        mailbox.close()


def test_what_a_handler_raises_reaches_the_asker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in a handler is raised where the question was asked, with the rank, and the mailbox answers on."""

    def fail(rank: int, data: bytearray) -> bytes:
        raise ValueError(f"{len(data)} bytes from {rank}")

    first, second = open_both(monkeypatch, {"name": fail})
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^rank 0: ValueError: 3 bytes from 1$"):
            second.ask(0, "name", b"abc")
    for mailbox in (first, second):
        mailbox.close()


def test_a_cut_connection_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that the other side has closed is replaced; there is one connection for each peer all along."""
    first, second = open_both(monkeypatch, {})
    first.publish("name", b"here")
    for _ in range(3):
        for _ in range(5):
            assert second.ask(0, "name") == b"here"
        assert len(first._accepted) == 1
        for connection in list(first._accepted):
            sockets.end(connection)
        while first._accepted:  # its thread notices
            threading.Event().wait(0.001)
    for mailbox in (first, second):
        mailbox.close()


def test_closing_ends_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """After both mailboxes are closed none of their threads is left."""
    first, second = open_both(monkeypatch, {})
    first.publish("name", b"here")
    assert second.ask(0, "name") == b"here"
    threads = [thread for thread in threading.enumerate() if thread.name == "mailbox"]
    assert len(threads) >= 3
    assert all(thread.daemon for thread in threads)
    for mailbox in (first, second):
        mailbox.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
