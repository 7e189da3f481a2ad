"""Runs on two hosts, which are network namespaces, and what goes wrong with them; part of `nox -s survive`, as root."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import psutil
import pytest

from rlbench.harness.launch.nodes.channel import Channel
from rlbench.harness.launch.nodes.clocks import NodeClock
from tests.nodes.hosts import ADDRESSES, TwoHosts
from tests.nodes.sweeps import (
    LONG,
    SYSTEMS,
    TWO_A_HOST,
    below,
    finish,
    imports_first,
    is_quiet,
    records,
    remote_by_host,
    start,
    until,
    until_stepping,
)

OPEN_FRIDGE = Path(__file__).parents[2] / "scenarios" / "emulated" / "profiles" / "open-fridge.toml"
LEARN_ITEM_MS = 14.0
"""With it, 30 epochs take longer than the stall watch would wait; each is seen to go on."""
pytestmark = pytest.mark.xdist_group("hosts")
"""One after the other: they take a machine for two."""
LOOPBACK = {"127.0.0.1", "[::1]"}
AWAY_S = 5000


@pytest.mark.parametrize("system", SYSTEMS)
def check_every_system_runs(hosts: TwoHosts, tmp_path: Path, system: str) -> None:
    """Its ranks are on both hosts, to the sample; nothing listens where the launch did not say, nothing is left."""
    run = start(hosts, tmp_path, "--systems", system, *TWO_A_HOST, "--seconds", "15")
    until_stepping(hosts, 1)
    listening = {host: hosts.listening(host) for host in (0, 1)}
    said = finish(run)
    (record,) = records(tmp_path)
    assert record.status == "finished", said
    assert [(node.first_rank, node.num_ranks) for node in record.nodes] == [(0, 2), (2, 2)]
    assert all(node.clock_error_s is not None and node.clock_error_s < 1e-2 for node in record.nodes)
    assert record.counters.conserved
    assert record.counters.learned
    for host, addresses in listening.items():
        assert addresses <= {ADDRESSES[host], *LOOPBACK}, addresses
    assert ADDRESSES[0] in listening[0]
    (folder,) = (path.parent for path in tmp_path.glob("*/*/run.json"))
    assert set(pd.read_parquet(folder / "series.parquet")["rank"]) == {0, 1, 2, 3}
    assert record.figures.cpu_percent.value
    until(lambda: is_quiet(hosts), "all processes end")
    assert [path.name for path in folder.iterdir() if path.suffix in {".json", ".bin", ".jsonl"}] == ["run.json"]


def check_clocks_are_one(hosts: TwoHosts, tmp_path: Path) -> None:
    """A host whose clock is 5,000 s off: iterations of all ranks end together all the same."""
    remote = remote_by_host(tmp_path, {hosts.names[1]: f"unshare --time --monotonic {AWAY_S} --fork --kill-child"})
    run = start(hosts, tmp_path / "runs", "--systems", "sync", *TWO_A_HOST, "--seconds", "5", "--remote", remote)
    said = finish(run)
    (record,) = records(tmp_path / "runs")
    assert record.status == "finished", said
    (folder,) = (path.parent for path in tmp_path.glob("runs/*/*/run.json"))
    series = pd.read_parquet(folder / "series.parquet")
    ends = series.pivot_table(index="iteration", columns="rank", values="end_s")
    wall_s = 0.05  # seconds of the profile are so long
    apart_s = (ends.max(axis=1) - ends.min(axis=1)) * wall_s
    assert apart_s.min() < 0.02, "they leave an all-reduce together; clocks that are apart are so in each iteration"
    assert series["begin_s"].min() >= 0
    assert pd.read_parquet(folder / "spans.parquet")["end_s"].max() < 1000
    telemetry = pd.read_parquet(folder / "telemetry.parquet")
    assert telemetry["t"].abs().max() < 1000 / wall_s


ANSWER = """
import socket, sys, time
from rlbench.harness.launch.nodes.channel import Channel, Closed
channel = Channel(socket.create_connection((sys.argv[1], int(sys.argv[2]))))
try:
    while True:
        if (message := channel.receive(1.0)) is not None:
            channel.send("pong", number=message.fields["number"], at_s=time.perf_counter())
except Closed:
    pass
"""


def check_clocks_are_within_a_millisecond() -> None:
    """The true distance of two clocks is known where the kernel makes it: it is found within what is said, and 1 ms."""
    with socket.create_server((LOCAL, 0)) as listener:
        words = [sys.executable, "-c", ANSWER, LOCAL, str(listener.getsockname()[1])]
        away = ["unshare", "--time", "--monotonic", str(AWAY_S), "--fork", "--kill-child"]
        other = subprocess.Popen([*away, *words])
        connection, _ = listener.accept()
    channel, clock = Channel(connection), NodeClock()
    for number in range(40):
        sent = time.perf_counter()
        channel.send("ping", number=number)
        message = channel.receive(5.0)
        assert message is not None
        clock.add(sent, message.fields["at_s"], time.perf_counter())
        if number == 20:
            now = sent  # what is said holds between the first ping and the last
        time.sleep(0.05)
    channel.close()
    other.wait(10)
    shift = clock.shift()
    assert shift.error_s < 1e-3
    assert abs(shift.at(now + AWAY_S) - now) < shift.error_s


LOCAL = "127.0.0.1"


@pytest.mark.parametrize(("system", "iterations"), [("ddppo", 200), ("appo", 40)])  # an iteration of appo is longer
def check_a_lost_host(hosts: TwoHosts, tmp_path: Path, system: str, iterations: int) -> None:
    """All processes of a host are killed: the other ends by itself, the cell is failed, --resume completes it."""
    cell = ("--systems", system, *TWO_A_HOST, "--iterations", str(iterations), "--time-limit", "300")
    run = start(hosts, tmp_path, *cell)
    agent = until_stepping(hosts, 1)
    victims = [agent, *agent.children(recursive=True)]
    for one in victims:
        with suppress(psutil.Error):
            one.kill()
    until(lambda: is_quiet(hosts), "the other host ends", 30.0)
    said = finish(run)
    assert run.returncode == 1
    (record,) = records(tmp_path)
    assert record.status == "failed"
    assert record.reason is not None
    assert record.reason.startswith(f"node 1 ({hosts.names[1]}) was lost"), said
    assert record.nodes[1].lost
    again = start(hosts, tmp_path, *cell, "--resume")
    assert "finished" in finish(again, 200)
    assert [each.status for each in records(tmp_path)] == ["failed", "finished"]


KEEPERS = ("rlbench.harness.launch.nodes.agent", "rlbench.harness.run.keeper", "torch.distributed.run")


@pytest.mark.parametrize(
    ("module", "system"),
    [
        *((module, "ver") for module in KEEPERS),
        *(("rlbench.harness.launch.rank", each) for each in ("ver", "appo", "impala")),
    ],
)
@pytest.mark.parametrize("host", [0, 1])
def check_a_killed_process(hosts: TwoHosts, tmp_path: Path, module: str, system: str, host: int) -> None:
    """Whichever it is: the run ends soon, as failed, with the host named, and leaves no process."""
    run = start(hosts, tmp_path, "--systems", system, *TWO_A_HOST, *LONG)
    until_stepping(hosts, 1 - host)
    agent = until_stepping(hosts, host)
    victim = agent if module == "rlbench.harness.launch.nodes.agent" else below(agent, module)[0]
    victim.kill()
    said = finish(run, 30)
    (record,) = records(tmp_path)
    assert record.status == "failed"
    assert record.reason is not None
    assert f"node {host} ({hosts.names[host]})" in record.reason, said
    if module == "rlbench.harness.launch.rank":
        assert f"rank {2 * host} was killed by SIGKILL" in record.reason
    until(lambda: is_quiet(hosts), "all processes end", 10)


@pytest.mark.parametrize("system", ["sync", "appo", "impala"])
def check_a_rank_that_raises(hosts: TwoHosts, tmp_path: Path, system: str) -> None:
    """Its error is the reason, and its traceback is kept, though it was on the other host."""
    run = start(hosts, tmp_path, "--systems", system, *TWO_A_HOST, *LONG)
    agent = until_stepping(hosts, 1)
    stepping = next(one for one in below(agent, "rlbench.harness.launch.rank")[::-1] if one.children())
    stepping.children(recursive=True)[-1].kill()
    said = finish(run, 30)
    (record,) = records(tmp_path)
    assert record.reason is not None
    if system == "sync":
        assert f"on node 1 ({hosts.names[1]})" in record.reason, said
    else:  # rank 0, which acts for them, raises what it is told of it
        assert "WorkerDied: environment worker rank" in record.reason, said
        assert "was killed by SIGKILL" in record.reason, said
    (folder,) = (path.parent for path in tmp_path.glob("*/*/run.json"))
    assert (folder / "traceback.txt").read_text().startswith("Traceback")


def check_a_long_learning_phase(hosts: TwoHosts, tmp_path: Path) -> None:
    """While the learner learns for all, the ranks of the other host have nothing to do: they are not taken for hung."""
    stall_s = 6  # an agent may take twice as long to answer, on a busy machine
    (tmp_path / "slow.toml").write_text(
        re.sub(r"(?m)^learn_item_ms = \S+", f"learn_item_ms = {LEARN_ITEM_MS}", OPEN_FRIDGE.read_text())
    )
    scenario = f"emulated/{tmp_path}/slow.toml:num_envs=2:rollout_steps=32:time_scale=0.05"
    cell = ("--systems", "appo:overlap=alternate:learn.epochs=30", "--scenario", scenario, "--iterations", "1")
    run = start(hosts, tmp_path / "runs", *TWO_A_HOST, *cell, "--stall", str(stall_s))
    said = finish(run)
    (record,) = records(tmp_path / "runs")
    assert record.status == "finished", said
    (folder,) = (path.parent for path in tmp_path.glob("runs/*/*/run.json"))
    spans = pd.read_parquet(folder / "spans.parquet")
    learning = spans[spans["kind"] == "learn"]
    wall_s = 0.05  # a second of the profile takes so long
    assert (learning["end_s"] - learning["begin_s"]).max() * wall_s > 5.5 * stall_s, "5 times --stall"


def check_a_silent_host(hosts: TwoHosts, tmp_path: Path) -> None:
    """A host that stands still closes no connection: it is given up all the same, and the run ends."""
    run = start(hosts, tmp_path, "--systems", "ver", *TWO_A_HOST, *LONG)
    agent = until_stepping(hosts, 1)
    for one in [agent, *agent.children(recursive=True)]:
        with suppress(psutil.Error):
            one.send_signal(signal.SIGSTOP)
    until(lambda: run.poll() is not None, "the run ends", 60)
    said = finish(run, 5)
    (record,) = records(tmp_path)
    assert record.reason is not None
    assert f"node 1 ({hosts.names[1]}) was lost: nothing was heard of it for 5 s" in record.reason, said


def check_the_harness_is_killed(hosts: TwoHosts, tmp_path: Path) -> None:
    """Nothing goes on without it, on any host; --resume runs the cell again."""
    cell = ("--systems", "ver", *TWO_A_HOST, "--seconds", "10", "--time-limit", "100")
    run = start(hosts, tmp_path, *cell)
    until_stepping(hosts, 1)
    (rlbench,) = [one for one in hosts.processes(0) if one.pid == run.pid]
    rlbench.kill()
    until(lambda: is_quiet(hosts), "all processes end", 30)
    finish(run, 10)
    assert not records(tmp_path)
    again = start(hosts, tmp_path, *cell, "--resume")
    assert "finished" in finish(again)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def check_interrupted(hosts: TwoHosts, tmp_path: Path, number: int) -> None:
    """Ctrl-C ends the run on both hosts, and leaves nothing of it."""
    run = start(hosts, tmp_path, "--systems", "ddppo", *TWO_A_HOST, *LONG)
    until_stepping(hosts, 1)
    run.send_signal(number)
    said = finish(run, 30)
    assert run.returncode == 130, said
    assert not records(tmp_path)
    assert not list(tmp_path.glob("*/.partial*"))
    assert is_quiet(hosts)


DIES_SENDING = """
import os, signal
from rlbench.harness.launch.nodes import channel
send = channel.Channel.send
def die_instead(self, kind, data=b"", **fields):
    if kind == "sent":
        os.kill(os.getpid(), signal.SIGKILL)
    send(self, kind, data, **fields)
channel.Channel.send = die_instead
"""


def check_a_missing_part(hosts: TwoHosts, tmp_path: Path) -> None:
    """A run of which a node has left only a part is no run: it is failed, with the node named."""
    (tmp_path / "sitecustomize.py").write_text(DIES_SENDING)
    remote = remote_by_host(tmp_path, {hosts.names[1]: imports_first(tmp_path)})
    run = start(hosts, tmp_path / "runs", "--systems", "ver", *TWO_A_HOST, "--seconds", "3", "--remote", remote)
    said = finish(run, 60)
    (record,) = records(tmp_path / "runs")
    assert record.status == "failed", said
    assert record.reason is not None
    assert record.reason.startswith(f"the part of node 1 ({hosts.names[1]}) is missing")
    until(lambda: is_quiet(hosts), "all processes end", 10)


ATTACK = """
import socket, struct
hello = b'{{"kind": "hello", "node": 1, "secret": "?"}}'
for data in (b'', b'\\xff' * 4096, struct.pack('!II', len(hello), 0) + hello):
    with socket.create_connection(('{address}', {port})) as one:
        one.sendall(data)
        one.settimeout(5)
        try:
            assert one.recv(1) == b''
        except (TimeoutError, ConnectionError):
            pass
"""


def check_strangers_are_turned_away(hosts: TwoHosts, tmp_path: Path) -> None:
    """Whoever connects to the head without the run's secret gets nothing, and harms nothing."""
    run = start(hosts, tmp_path, "--systems", "ver", *TWO_A_HOST, "--seconds", "20")
    until_stepping(hosts, 1)
    (head,) = [
        one for one in hosts.processes(0) if "rlbench.harness.run.keeper" in one.cmdline() and one.ppid() == run.pid
    ]
    (port,) = hosts.ports(0, head.pid)
    attack = ATTACK.format(address=ADDRESSES[0], port=port)
    done = hosts.run(1, sys.executable, "-c", attack)
    assert done.returncode == 0, done.stderr
    said = finish(run)
    (record,) = records(tmp_path)
    assert record.status == "finished", said


LISTENS_IN = """#!/bin/sh
read -r line
echo "$line" > {told}
{{ echo "$line"; cat; }} | ip netns exec "$@"
"""


def check_no_secret_is_shown(hosts: TwoHosts, tmp_path: Path) -> None:
    """The run's secret, which the agents get through stdin, is in no command line, no variable and no file."""
    told, script = tmp_path / "told.json", tmp_path / "listens-in"
    script.write_text(LISTENS_IN.format(told=told))
    script.chmod(0o755)
    more = ("--remote", f"{script} {{host}}")
    run = start(hosts, tmp_path / "runs", "--systems", "ver", *TWO_A_HOST, "--seconds", "8", *more)
    agent = until_stepping(hosts, 1)
    secret = json.loads(told.read_text())["secret"]
    assert len(secret) == 32
    shown = []
    for host in (0, 1):
        for one in hosts.processes(host):
            with suppress(psutil.Error):
                shown.append(" ".join(one.cmdline()) + json.dumps(one.environ()))
    assert shown
    assert not [text for text in shown if secret in text]
    working = list(Path(below(agent, "rlbench.harness.run.keeper")[0].cmdline()[-1]).rglob("*"))
    assert [path for path in working if path.name == "cell.json"]
    assert not [path for path in working if path.is_file() and secret.encode() in path.read_bytes()]
    said = finish(run)
    assert records(tmp_path / "runs")[0].status == "finished", said
    kept = [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert kept
    assert not [data for data in kept if secret.encode() in data]


def check_the_first_host_is_full(hosts: TwoHosts, tmp_path: Path) -> None:
    """A file system that fills up while the parts come in: one line, and no half run."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], check=True)
    try:
        run = start(hosts, small, "--systems", "ver", *TWO_A_HOST, "--seconds", "4")
        said = finish(run)
        assert run.returncode != 0
        assert "No space left on device" in said
        assert "Traceback" not in said
        assert all(record.status == "failed" for record in records(small))
        assert is_quiet(hosts)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
