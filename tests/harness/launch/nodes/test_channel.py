from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from rlbench.harness.launch.nodes.channel import LARGEST_DATA, LARGEST_HEADER, SIZES, Channel, Closed, Message
from rlbench.harness.launch.nodes.clocks import NodeClock, Shift


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel, and the bare socket at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
    with other:
        channel = Channel(connection)
        yield channel, other
        channel.close()


def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, socket.socket]) -> None:
    """Also where they come in pieces."""
    channel, other = ends
    far = Channel(other)
    far.send("file", b"\x00\xff" * 1000, name="a")
    far.send("sent")
    assert channel.receive(5) == Message(kind="file", fields={"name": "a"}, data=b"\x00\xff" * 1000)
    assert channel.receive(5) == Message(kind="sent", fields={})
    assert channel.receive(0) is None


def test_pieces_are_put_together(ends: tuple[Channel, socket.socket]) -> None:
    """A message that comes byte by byte is one."""
    channel, other = ends
    header = json.dumps({"kind": "hello", "node": 1}).encode()
    for byte in SIZES.pack(len(header), 3) + header + b"abc":
        assert channel.receive(0) is None
        other.sendall(bytes([byte]))
    assert channel.receive(5) == Message(kind="hello", fields={"node": 1}, data=b"abc")


def test_large_data_goes_through(ends: tuple[Channel, socket.socket]) -> None:
    """More than sockets hold: the sender waits for the reader."""
    channel, other = ends
    data = random.Random(0).randbytes(LARGEST_DATA)
    far = Channel(other)

    def send_all() -> None:
        for _ in range(4):
            far.send("file", data)

    sender = threading.Thread(target=send_all)
    sender.start()
    got = [channel.receive(20) for _ in range(4)]
    sender.join()
    assert [message.data for message in got if message] == [data] * 4


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 100,
        SIZES.pack(LARGEST_HEADER + 1, 0),
        SIZES.pack(1, LARGEST_DATA + 1),
        SIZES.pack(2, 0) + b"[]",
        SIZES.pack(2, 0) + b"{}",
        SIZES.pack(1, 0) + b"{",
        SIZES.pack(2, 0) + b"\xc3\x28",
        SIZES.pack(100_000, 0) + b"[" * 100_000,
    ],
)
def test_what_is_no_message_ends_the_connection(ends: tuple[Channel, socket.socket], sent: bytes) -> None:
    """Whatever comes, it is a message or the end."""
    channel, other = ends
    other.sendall(sent)
    with pytest.raises(Closed, match="it sent what is no message"):
        channel.receive(5)


def test_the_end_of_the_other_side(ends: tuple[Channel, socket.socket]) -> None:
    """It is seen when it is read, and when it is written to."""
    channel, other = ends
    other.close()
    with pytest.raises(Closed, match="the connection was closed"):
        channel.receive(5)

    def send_on() -> None:
        for _ in range(100):
            channel.send("live")
            time.sleep(0.001)

    with pytest.raises(Closed):
        send_on()


def test_who_does_not_read_is_not_waited_for_without_end(
    ends: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process holds nobody up for long."""
    monkeypatch.setattr("rlbench.harness.launch.nodes.channel.SEND_LIMIT_S", 0.2)
    channel, _ = ends

    def send_on() -> None:
        for _ in range(100):
            channel.send("file", bytes(LARGEST_DATA))

    with pytest.raises(Closed, match=r"it has read nothing for 0\.2 s"):
        send_on()


def pinged(offset_s: float, drift: float, *, seconds: float = 100.0, slow: float = 0.0) -> NodeClock:
    """A clock that was pinged once a second, with times on the way that differ; the best took 0.2 ms."""
    draw, clock = random.Random(1), NodeClock()
    for second in range(int(seconds)):
        to, fro = (1e-4 + draw.expovariate(1 / 1e-3) * (second % 7 != 3) + slow for _ in range(2))
        at = second + to
        clock.add(float(second), at * (1 + drift) + offset_s, at + fro)
    return clock


@pytest.mark.parametrize("offset_s", [0.0, 5e3, -7e5])
@pytest.mark.parametrize("drift", [0.0, 4e-5, -4e-5])
def test_a_clock_is_found_within_its_error(offset_s: float, drift: float) -> None:
    """Wherever it began, and if it runs a little faster or slower."""
    shift = pinged(offset_s, drift).shift()
    assert shift.error_s < 3e-4
    for moment in (0.0, 50.0, 99.0):
        assert abs(shift.at(moment * (1 + drift) + offset_s) - moment) < shift.error_s


def test_a_clock_that_changes_its_rate_has_a_larger_error() -> None:
    """A straight line does not follow it: the error that is stated covers the worst of it."""
    clock, bend = NodeClock(), 1e-5
    for second in range(201):
        clock.add(float(second), second + 1e-4 + bend * abs(second - 100), second + 2e-4)
    shift = clock.shift()
    worst = max(abs(shift.at(second + bend * abs(second - 100)) - second) for second in range(201))
    assert worst > 3e-4
    assert worst < shift.error_s < worst + 3e-4


def test_a_clock_that_jumps_for_a_moment_has_a_larger_error() -> None:
    """Pings that contradict the line count, though others nearby do not."""
    clock = NodeClock()
    for second in range(60):
        clock.add(float(second), second + 1e-4 + 3e-3 * (52 <= second < 57), second + 2e-4)
    assert 3e-3 < clock.shift().error_s < 4e-3


def test_one_slow_answer_is_no_error() -> None:
    """Others nearby say more."""
    clock = NodeClock()
    for second in range(100):
        slow = 0.5 if second == 50 else 0.0
        clock.add(float(second), second + 1e-4 + slow, second + 2e-4 + slow)
    assert clock.shift().error_s < 2e-4


def test_an_impossible_drift_is_none() -> None:
    """A few pings within a moment tell no drift: their errors would."""
    clock = NodeClock()
    clock.add(0.0, 10.0, 0.002)
    clock.add(0.01, 10.0105, 0.012)
    shift = clock.shift()
    assert shift.drift == 0
    assert shift.error_s >= 0.001


def test_nothing_is_known_without_a_ping() -> None:
    """And a shift that does nothing does nothing."""
    with pytest.raises(ValueError, match="no ping was answered"):
        NodeClock().shift()
    assert Shift().at(12.5) == 12.5
