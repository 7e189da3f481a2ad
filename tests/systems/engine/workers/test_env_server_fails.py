"""What goes wrong with an environment server, and what the rank that acts hears of it; real workers, real sockets."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.system import Context
from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.engine.wire.errors import WorkerDied, WorkerStalled
from rlbench.systems.engine.workers import background, env_server, pool
from rlbench.systems.engine.workers import env_wire as wire
from rlbench.systems.engine.workers.env_client import Address, EnvClient
from rlbench.systems.engine.workers.env_server import EnvServer, rows_of
from rlbench.systems.engine.workers.pool import WorkerPool
from rlbench.systems.engine.workers.tables import SharedTable
from tests.harness.faulty_scenario import FAULT_AT, FaultyFamily, FaultyScenario
from tests.harness.runs import PATIENCE_S
from tests.scenarios.seats import PlainDevice
from tests.systems.actions import columns_of

NUM_ENVS = 2
ENVS = np.arange(NUM_ENVS)
STALL_S = 1.0
"""Where a stall is to be noticed; everywhere else, and until then, `PATIENCE_S`."""


@dataclass(slots=True)
class Served:
    """A server in this process, and its address."""

    server: EnvServer
    address: Address
    pool: WorkerPool
    scenario: FaultyScenario
    meter: RankMeter
    clients: list[EnvClient] = field(default_factory=list)

    def client(self, stall_s: float = PATIENCE_S) -> tuple[EnvClient, WorkerPool]:
        """Connects, as a rank does that has no environments of its own here: those of the server are its first."""
        table = SharedTable(columns_of(self.scenario, NUM_ENVS, 2 * NUM_ENVS, state_size=1))
        self.clients.append(EnvClient(self.address, table, range(NUM_ENVS), stall_s, acted=False))
        return self.clients[-1], self.pool

    def end(self) -> None:
        """Whatever has become of it."""
        for client in self.clients:
            client.close()
        with suppress(WorkerDied, WorkerStalled):
            self.server.join()
        if self.pool._commands:  # the server has failed, and its process would end
            self.pool.close(grace_s=0)
        self.meter.close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Served]]:
    """Where servers are put to be ended. Here the main thread is that of the tests, which may notice a failure late."""
    monkeypatch.setattr(background, "NOTICE_S", PATIENCE_S)
    monkeypatch.setattr(pool, "NOTICE_S", PATIENCE_S)
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    made: list[Served] = []
    yield made
    for one in made:
        one.end()


def start(folder: Path, made: list[Served], variant: str) -> Served:
    """A server of two environments, of which the second goes wrong."""
    scenario = replace(FaultyFamily().make(variant, "homogeneous"), num_envs=NUM_ENVS)
    meter = RankMeter(folder, 0, NUM_ENVS)
    num_rows = NUM_ENVS * rows_of(scenario.rollout_steps, acted=False)
    table = SharedTable(columns_of(scenario, NUM_ENVS, num_rows, state_size=1))
    context = Context(
        place=Place(rank=0, num_ranks=1, local_rank=0),
        scenario=scenario,
        device=PlainDevice("cpu"),
        seed=0,
        budget=Limits(iterations=1),
        meter=meter,
        folder=str(folder),
        stall_s=PATIENCE_S,
    )
    workers = WorkerPool(context, table, [context.seat(env, context.env_seed(env)) for env in range(NUM_ENVS)])
    server = EnvServer(workers, table, None, PATIENCE_S, folder / "error.json")
    made.append(Served(server, server.address(4), workers, scenario, meter))
    return made[-1]


def receive(client: EnvClient, number: int) -> None:
    """Takes so many replies."""
    deadline = time.monotonic() + PATIENCE_S
    while number > 0:
        assert time.monotonic() < deadline
        number -= sum(map(len, client.receive()))
        time.sleep(0.001)


def step(client: EnvClient, times: int) -> None:
    """Steps both environments, there and back."""
    for turn in range(times):
        here, there = (ENVS, ENVS + NUM_ENVS) if turn % 2 == 0 else (ENVS + NUM_ENVS, ENVS)
        client.step(ENVS, here, there)
        receive(client, NUM_ENVS)


@pytest.mark.parametrize("hello", [b"", b"\0" * wire.HELLO.size, secrets.token_bytes(500)])
def test_strangers_are_turned_away(
    serve: list[Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hello: bytes
) -> None:
    """Who does not say the key, or nothing, holds up nobody for long; the port is closed to all once the rank is in."""
    monkeypatch.setattr(env_server, "HELLO_S", 0.2)
    served = start(tmp_path, serve, "patient")
    where = (served.address.host, served.address.port)
    with socket.create_connection(where) as stranger:
        stranger.sendall(hello)
        stranger.settimeout(PATIENCE_S)
        with suppress(ConnectionError):
            assert stranger.recv(1) == b""
    monkeypatch.setattr(env_server, "HELLO_S", PATIENCE_S)
    client, _ = served.client()
    client.begin(ENVS, ENVS)
    receive(client, NUM_ENVS)
    step(client, 3)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where)
    client.close()
    served.server.join()


def test_a_worker_that_dies_is_named(serve: list[Served], tmp_path: Path) -> None:
    """As on the rank's own machine; the server raises the same, and leaves it."""
    served = start(tmp_path, serve, "patient")
    client, workers = served.client()
    client.begin(ENVS, ENVS)
    receive(client, NUM_ENVS)
    os.kill(workers.pids[1], signal.SIGKILL)
    died = "environment worker rank0-env1 was killed by SIGKILL"
    with pytest.raises(WorkerDied, match=died):
        step(client, 100)
    with pytest.raises(WorkerDied, match=died):
        served.server.join()
    assert died in (tmp_path / "error.json").read_text()


def test_a_worker_that_raises_is_heard_with_its_traceback(serve: list[Served], tmp_path: Path) -> None:
    """What a simulator raised on another machine stands in the error here."""
    served = start(tmp_path, serve, "raise-in-step")
    client, _ = served.client()
    client.begin(ENVS, ENVS)
    receive(client, NUM_ENVS)
    with pytest.raises(WorkerDied, match=r"(?s)no wall behind the wall.*Traceback.*_go_wrong"):
        step(client, FAULT_AT + 1)
    with pytest.raises(WorkerDied):
        served.server.join()


def test_a_worker_that_stalls_is_told_apart(serve: list[Served], tmp_path: Path) -> None:
    """The server looks after its own workers, and says so before the rank's patience ends."""
    served = start(tmp_path, serve, "sleep-in-step")
    client, workers = served.client()
    client.begin(ENVS, ENVS)
    receive(client, NUM_ENVS)
    step(client, FAULT_AT - 1)
    client.step(ENVS, ENVS + NUM_ENVS, ENVS)
    receive(client, 1)  # of the other one, which is not to be late
    workers._stall_s = STALL_S
    with pytest.raises(WorkerStalled, match=r"rank0-env1 has not answered for 1 s"):
        receive(client, 1)
    with pytest.raises(WorkerStalled):
        served.server.join()


def test_a_silent_server_is_given_up(serve: list[Served], tmp_path: Path) -> None:
    """An environment that has something to do and is not heard of, twice as long as it may take."""
    served = start(tmp_path, serve, "patient")
    client, _ = served.client()
    client.look_for_stalls(time.perf_counter() + 100 * PATIENCE_S)
    client.begin(ENVS, ENVS)
    client.look_for_stalls(time.perf_counter())
    said = f"the environment server on rank 4 has said nothing for {2 * PATIENCE_S:g} s"
    with pytest.raises(WorkerStalled, match=said):
        client.look_for_stalls(time.perf_counter() + 2 * PATIENCE_S + 0.1)
    receive(client, NUM_ENVS)
    client.look_for_stalls(time.perf_counter() + 100 * PATIENCE_S)
    client.close()
    served.server.join()


def test_a_server_that_is_gone(tmp_path: Path) -> None:
    """Its connection ends without a word; or nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(4, "127.0.0.1", listener.getsockname()[1], bytes(16), 1)
        scenario = FaultyFamily().make("patient", "homogeneous")
        table = SharedTable(columns_of(scenario, NUM_ENVS, 2 * NUM_ENVS, state_size=1))
        client = EnvClient(address, table, range(NUM_ENVS), PATIENCE_S, acted=False)
        connection, _ = listener.accept()
        connection.close()
        with pytest.raises(WorkerDied, match="the environment server on rank 4 has ended"):
            step(client, 2)
        client.close()
    unreachable = r"the environment server on rank 4 \(127\.0\.0\.1:\d+\) cannot be reached"
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # its port is nobody else's, and it does not listen
        with pytest.raises(RuntimeError, match=unreachable):
            EnvClient(replace(address, port=deaf.getsockname()[1]), table, range(NUM_ENVS), PATIENCE_S, acted=False)
    assert not list(tmp_path.iterdir())


def test_messages_larger_than_a_read() -> None:
    """Of many megabytes, sent while the other side reads piece by piece."""
    ours, theirs = socket.socketpair()
    body = secrets.token_bytes(5 * wire.READ_BYTES + 3)
    sender = threading.Thread(target=wire.send, args=(ours, wire.STEP, 7, [body[:100], body[100:]], None))
    sender.start()
    inbox = wire.Inbox(theirs)
    messages: list[wire.WireMessage] = []
    while not messages:
        messages = inbox.read()
    sender.join()
    assert (messages[0].what, messages[0].count) == (wire.STEP, 7)
    assert bytes(messages[0].body) == body
    ours.close()
    theirs.close()
