from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from rlbench.systems.engine.workers.env_wire import BEGIN, HEAD, STEP, WEIGHTS, Inbox, WireMessage, receive, send

LIMIT_S = 120.0
MESSAGES = ((BEGIN, 3, b"abc"), (STEP, 2**31, b""), (WEIGHTS, 7, b"x" * 5000))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both sides of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def said(messages: list[WireMessage]) -> list[tuple[int, int, bytes]]:
    """What is in them."""
    return [(one.what, one.count, bytes(one.body)) for one in messages]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_read_as_soon_as_it_is_whole(
    ends: tuple[socket.socket, socket.socket], message: tuple[int, int, bytes]
) -> None:
    """Without a byte of the next one, by who waits for it and by who looks what has come."""
    ours, theirs = ends
    what, count, body = message
    send(ours, what, count, [body[:1], body[1:]], LIMIT_S)
    assert said([receive(theirs, LIMIT_S)]) == [message]
    send(ours, what, count, [body], LIMIT_S)
    assert said(Inbox(theirs).read()) == [message]


def test_messages_become_whole_bit_by_bit(ends: tuple[socket.socket, socket.socket]) -> None:
    """However a connection cuts them, each comes once, in order, with its last byte and not before."""
    ours, theirs = ends
    stream = b"".join(HEAD.pack(what, count, len(body)) + body for what, count, body in MESSAGES)
    lengths = [HEAD.size + len(body) for _, _, body in MESSAGES]
    whole = [sum(lengths[: number + 1]) for number in range(len(lengths))]
    inbox, came = Inbox(theirs), list[tuple[int, int, bytes]]()
    for at in range(len(stream)):
        ours.sendall(stream[at : at + 1])
        came += said(inbox.read())
        assert len(came) == sum(end <= at + 1 for end in whole)
    assert tuple(came) == MESSAGES
    assert inbox.read() == []


def test_the_end_of_a_connection_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    """In the midst of a message or between two, and none is made up."""
    ours, theirs = ends
    inbox = Inbox(theirs)
    ours.sendall(HEAD.pack(STEP, 1, 2) + b"a")
    assert inbox.read() == []
    ours.close()
    with pytest.raises(ConnectionResetError, match="has ended"):
        inbox.read()
