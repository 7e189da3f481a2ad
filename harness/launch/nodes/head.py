"""The head of a run on several machines: it has the keeper's place below the runner, and an agent on every node.

The head alone writes the run's folder. The agents work in folders on their own disks and send their files, so nothing
needs a shared file system. The steps, each with a limit: the `--remote` command starts the agents, and they connect;
the head compares the nodes, and refuses one with other software; it compares clocks; node 0 says where the ranks will
meet; all start. Then the head listens, and pings. It blocks in one `poll`, for 0.2 s at a time, on all connections and
on stdin, whose end of file says that the runner is gone or wants the run ended. The run ends when all nodes have ended,
when one has failed or timed out, or when one is lost: its connection has ended, or nothing has come from it for
`SILENT_S`. Then the head tells the others to end, and collects the files of all.

Deaths. If the head dies, every agent's connection ends, and with it the node's part. If an agent dies, its keeper's
stdin ends. If a remote command dies, its agent's stdin ends. If a machine dies, it falls silent. The head listens on
one interface, and accepts a connection only with the run's secret, which the agents get through stdin.
"""

from __future__ import annotations

import json
import re
import secrets
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rlbench.harness.contract.traits import TRAITS_FILE, Traits
from rlbench.harness.launch.nodes import agent
from rlbench.harness.launch.nodes.channel import Channel, Closed, Message
from rlbench.harness.launch.nodes.clocks import NUM_AT_ENDS
from rlbench.harness.launch.nodes.gathered import LIVE_FILE, NODES_FILE
from rlbench.harness.launch.nodes.launches import address_of, interface_towards, listen
from rlbench.harness.launch.nodes.node_link import END_LIMIT_S, NodeLink, decide, why_no_room, why_not_alike
from rlbench.harness.metering.live import Snapshot
from rlbench.harness.plan.cells import Cell
from rlbench.harness.processes import leftovers, process
from rlbench.harness.processes.held import CELL_FILE
from rlbench.harness.processes.outcome import Outcome
from rlbench.harness.processes.scratch import Scratch
from rlbench.results.records import store

if TYPE_CHECKING:
    from rlbench.harness.launch.nodes.launches import Launch
    from rlbench.harness.processes.held import KeptRun

START_STALLS, ANSWER_LIMIT_S = 2, 30.0
"""Nodes have this many times as long as an environment (`--stall`) to come up and connect; then, seconds to answer."""
GRACE_S, CAUSE_S = 1.5, 10.0
"""Seconds to wait for more news after the first bad news: where it tells the cause, and where it does not."""
EXIT_LIMIT_S = 5.0
"""Seconds that a remote command has to end, once its agent has ended or never came up."""
STRAGGLER_LIMIT_S, LATE_S = 20.0, 30.0
"""Seconds that the other nodes have to end once one has, where ranks go in step; and seconds that all nodes have beyond
the run's time limit, which each node's keeper watches itself."""
MOST_STRANGERS = 16
PING_EVERY_S = 1.0
OF_EACH_NODE = {"processes.txt", "keeper.err", "torchrun.err", agent.TELEMETRY_FILE}
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,120}")


class _Over(Exception):  # noqa: N818  how a run ends, not an error
    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Head:
    """One run, from its start to its end."""

    def __init__(self, kept: KeptRun, launch: Launch) -> None:
        self._kept, self._folder, self._launch = kept, kept.path, launch
        self._scratch = Scratch.of(self._folder)
        self._cell_text = (self._folder / CELL_FILE).read_text(encoding="utf-8")
        self._cell = Cell.from_json(self._cell_text)
        self._in_step = Traits.read(self._folder).in_step
        self._secret = secrets.token_hex(16)
        self._nodes: list[NodeLink] = []
        self._strangers: list[Channel] = []
        """Connections that have not yet said which node they belong to."""
        self._pings: dict[int, float] = {}
        self._is_alone = False  # the runner is gone, or wants the run ended
        self._port = 0
        self._listener: socket.socket | None = None
        self._poll = select.poll()
        self._next_live = 0.0

    def keep(self) -> Outcome:
        """Runs the cell to its end."""
        process.adopt_orphans()
        try:
            self._start_agents()
            self._await(lambda node: bool(node.hello), START_STALLS * self._cell.stall_s, "has not answered")
            self._compare()
            self._ping_all()
            self._start_ranks()
            self._run()
            outcome = self._end()
        except _Over as over:
            outcome = over.outcome
            with suppress(_Over):
                self._end()
        finally:
            self._leave_nodes()
            self._close()
        return outcome

    def _start_agents(self) -> None:
        launch = self._launch
        try:
            address = address_of(launch.interface or self._interface())
            self._listener = listen(address)
        except (ValueError, OSError) as error:
            raise _Over(Outcome("failed", str(error))) from None
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
        port = self._listener.getsockname()[1]
        for number in range(launch.num_nodes(self._cell.gpus)):
            words = launch.command(number, [sys.executable, "-P", "-m", "rlbench_start", agent.__name__])
            with (self._folder / f"node{number}.err").open("wb") as err:
                try:
                    command = subprocess.Popen(  # noqa: S603  what the user said reaches a host
                        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=err
                    )
                except OSError as error:
                    raise _Over(Outcome("failed", f"--remote: {words[0]}: {error.strerror}")) from None
            ranks = launch.ranks_of(number, self._cell.gpus)
            node = NodeLink(
                number=number,
                host=launch.hosts[number],
                command=command,
                ranks=ranks,
                errors=self._folder / f"node{number}.err",
                poll=self._poll,
            )
            self._nodes.append(node)
            told = {"address": address, "port": port, "secret": self._secret, "node": number}
            told["interface"] = launch.interface
            assert command.stdin is not None
            with suppress(OSError):  # a command that has ended already is seen below
                command.stdin.write(json.dumps(told).encode() + b"\n")
                command.stdin.flush()

    def _interface(self) -> str:
        """This machine's interface that leads to the first host that is not this machine; `lo` if there is none."""
        others = [host for host in self._launch.hosts if host not in {"localhost", socket.gethostname()}]
        return interface_towards(others[0]) if others else "lo"

    def _compare(self) -> None:
        """Refuses nodes with other software, or with too few GPUs."""
        reason = why_not_alike(self._nodes, agent.describe())
        if self._cell.device == "cuda" and not self._launch.oversubscribe:
            reason = reason or why_no_room(self._nodes)
        if reason:
            raise _Over(Outcome("failed", reason))

    def _start_ranks(self) -> None:
        first = self._nodes[0]
        first.send("listen")
        self._await(lambda _: bool(self._port), ANSWER_LIMIT_S, "has not said where it listens", [first])
        run_id, traits = secrets.token_hex(8), (self._folder / TRAITS_FILE).read_text(encoding="utf-8")
        for node in self._nodes:
            seat = {
                "node": node.number,
                "num_nodes": len(self._nodes),
                "first_rank": node.ranks.start,
                "num_local": len(node.ranks),
                "address": first.hello["address"],
                "port": self._port,
                "run_id": run_id,
            }
            ranks = [node.ranks.start, node.ranks.stop]
            node.send("start", cell=self._cell_text, hash=self._cell.hash(), traits=traits, seat=seat, ranks=ranks)

    def _run(self) -> None:
        """Returns when all nodes have ended, or one has failed and news from the others has had time to come."""
        deadline = time.monotonic() + self._cell.time_limit_s + LATE_S
        next_ping, give_up_at = 0.0, float("inf")
        while not all(node.is_done for node in self._nodes) and time.monotonic() < give_up_at:
            now = time.monotonic()
            if now >= next_ping:
                for node in self._nodes:
                    self._ping(node)
                next_ping = now + PING_EVERY_S
            self._pump(0.2)
            for node in self._nodes:
                limit_s = node.silent_limit_s
                if not node.is_done and node.channel is not None and now - node.channel.heard_at > limit_s:
                    node.lose(f"nothing was heard of it for {limit_s:g} s")
            if any(node.lost or (node.outcome and not node.outcome.is_orderly) for node in self._nodes):
                grace_s = GRACE_S if any(node.knows_cause for node in self._nodes) else CAUSE_S
                give_up_at = min(give_up_at, time.monotonic() + grace_s)
            ended = [node.ended_at for node in self._nodes if node.outcome]
            late = [node for node in self._nodes if not node.is_done]
            if late and self._in_step and ended and now - min(ended) > STRAGGLER_LIMIT_S:
                raise _Over(
                    Outcome("failed", f"{late[0].name} did not end within {STRAGGLER_LIMIT_S:g} s of the other nodes")
                )
            if late and now > deadline:
                raise _Over(Outcome("timed-out", f"not over after {self._cell.time_limit_s:g} s (--time-limit)"))

    def _end(self) -> Outcome:
        """Has all nodes end, and collects their files; returns how the run ended."""
        outcome = decide(self._nodes)
        for node in self._nodes:
            if not node.is_done and node.channel is not None:
                node.send("end")
        deadline = time.monotonic() + END_LIMIT_S
        asked = [node for node in self._nodes if node.channel is not None]
        while not all(node.is_done for node in asked) and time.monotonic() < deadline:
            self._pump(0.2, heeds_stdin=False)
        self._collect([node for node in self._nodes if node.outcome and not node.lost])
        missing = next((node for node in self._nodes if not node.has_sent), None)
        if outcome.is_orderly and missing is not None:
            return Outcome("failed", f"the part of {missing.name} is missing: {missing.lost or 'it never ended'}")
        return outcome

    def _collect(self, here: list[NodeLink]) -> None:
        """Gets the files that the nodes have left, and lets their agents end."""
        self._ping_all(here)
        for node in here:
            node.send("collect")
        while not all(node.has_sent or node.lost for node in here):
            self._pump(0.2, heeds_stdin=False)
            for node in here:
                if node.channel is None or node.has_sent:
                    continue
                if time.monotonic() - node.channel.heard_at > ANSWER_LIMIT_S:
                    node.lose(f"it has sent nothing for {ANSWER_LIMIT_S:g} s")
        for node in here:
            node.send("end")

    def _await(self, is_so: Any, limit_s: float, what: str, nodes: list[NodeLink] | None = None) -> None:
        """Returns when `is_so` holds for all nodes; raises _Over when one is lost, or after `limit_s`."""
        nodes = self._nodes if nodes is None else nodes
        deadline = time.monotonic() + limit_s
        while late := [node for node in nodes if not is_so(node)]:
            self._pump(0.2)
            if lost := [node for node in self._nodes if node.lost]:
                raise _Over(Outcome("failed", f"{lost[0].name}: {lost[0].lost}"))
            if time.monotonic() > deadline:
                names = ", ".join(node.name for node in late)
                raise _Over(Outcome("failed", f"{names} {what} within {limit_s:g} s"))

    def _ping(self, node: NodeLink) -> None:
        number = len(self._pings)
        self._pings[number] = time.perf_counter()
        node.send("ping", number=number)

    def _ping_all(self, nodes: list[NodeLink] | None = None) -> None:
        """Compares clocks: pings one node after the other, and sends each ping when the one before is answered."""
        for node in self._nodes if nodes is None else nodes:
            for _ in range(NUM_AT_ENDS):
                before, deadline = node.clock.num_samples, time.monotonic() + ANSWER_LIMIT_S
                self._ping(node)
                while node.clock.num_samples == before and not node.lost:
                    self._pump(0.2, heeds_stdin=False)
                    if time.monotonic() > deadline:
                        node.lose(f"it has answered no ping for {ANSWER_LIMIT_S:g} s")

    def _pump(self, limit_s: float, *, heeds_stdin: bool = True) -> None:
        """Waits for news, for `limit_s` at most, and handles it. Raises _Over when the runner is gone."""
        ready = {fd for fd, _ in self._poll.poll(limit_s * 1000)}
        self._kept.look(lambda: [node.command.pid for node in self._nodes])
        assert self._listener is not None
        if sys.stdin.fileno() in ready:
            self._poll.unregister(sys.stdin)  # which stays readable from now on
            self._is_alone = True
        if self._is_alone and heeds_stdin:
            raise _Over(Outcome("ended", "the harness ended the run"))
        if self._listener.fileno() in ready:
            self._admit()
        for stranger in [one for one in self._strangers if one.fileno() in ready]:
            self._greet(stranger)
        for node in self._nodes:
            if node.channel is None:
                node.look_at_command()
            elif not node.lost and node.channel.fileno() in ready:
                self._hear(node, node.channel)
        if time.monotonic() >= self._next_live:
            self._next_live = time.monotonic() + 0.5
            self._leave_live()

    def _hear(self, node: NodeLink, channel: Channel) -> None:
        """Handles what a node has sent."""
        try:
            while not node.lost and (message := channel.receive(0.0)):
                self._take(node, message)
        except Closed as closed:
            node.lose(str(closed))
        except (KeyError, TypeError, ValueError) as error:
            node.lose(f"it sent what is no message ({error!r})")

    def _admit(self) -> None:
        """Accepts a connection, whose first message says which node it is; closes the oldest silent one of too many."""
        assert self._listener is not None
        connection, _ = self._listener.accept()
        stranger = Channel(connection)
        self._strangers.append(stranger)
        self._poll.register(stranger, select.POLLIN)
        if len(self._strangers) > MOST_STRANGERS + len(self._nodes):
            oldest = self._strangers.pop(0)
            self._poll.unregister(oldest)
            oldest.close()

    def _greet(self, stranger: Channel) -> None:
        """Assigns a connection to its node, or closes it."""
        node, message = None, None
        with suppress(Closed, KeyError, TypeError, ValueError, IndexError):
            message = stranger.receive(0.0)
            if message is None:
                return  # the message is not whole yet
            if message.kind == "hello" and secrets.compare_digest(str(message.fields["secret"]), self._secret):
                node = self._nodes[int(message.fields["node"])]
        self._strangers.remove(stranger)
        if node is None or message is None or node.channel is not None:
            self._poll.unregister(stranger)
            stranger.close()
            return
        node.channel, node.hello = stranger, {k: v for k, v in message.fields.items() if k != "secret"}

    def _take(self, node: NodeLink, message: Message) -> None:
        fields = message.fields
        match message.kind:
            case "pong":
                now = time.perf_counter()
                if (sent := self._pings.get(fields["number"])) is not None:
                    node.clock.add(sent, float(fields["at_s"]), now)
            case "listening":
                self._port = int(fields["port"])
            case "live":
                node.snapshot = Snapshot(**fields)
            case "ending":
                node.is_ending = True
            case "outcome":
                node.outcome, node.ended_at = Outcome(**{**fields, "lost": ()}), time.monotonic()
            case "file":
                self._keep_file(node, str(fields["name"]), message.data)
            case "sent":
                node.has_sent = True
            case kind:
                node.lose(f"it sent what is no message: {kind!r}")

    def _keep_file(self, node: NodeLink, name: str, data: bytes) -> None:
        if not NAME.fullmatch(name):
            node.lose(f"it sent a file of the name {name!r}")
            return
        stem, dot, suffix = name.partition(".")
        if name in OF_EACH_NODE:
            name = f"{stem}-node{node.number}{dot}{suffix}"
        try:
            with (self._folder / name).open("ab") as file:
                file.write(data)
        except OSError as error:
            raise _Over(Outcome("failed", f"{name} of {node.name} cannot be written: {error.strerror}")) from None

    def _leave_live(self) -> None:
        """Writes how far the run is, for the display."""
        snapshots = [node.snapshot for node in self._nodes if node.snapshot]
        if len(snapshots) < len(self._nodes) or not snapshots:
            return
        together = Snapshot(
            phase=snapshots[0].phase,
            iterations=min(one.iterations for one in snapshots),
            learned=sum(one.learned for one in snapshots),
            env_steps=sum(one.env_steps for one in snapshots),
            joint_steps=sum(one.joint_steps for one in snapshots),
        )
        with suppress(OSError):  # it is for a display alone
            store.write_whole(self._folder / LIVE_FILE, json.dumps(asdict(together)))

    def _leave_nodes(self) -> None:
        """Writes what is known of the nodes, for the record."""
        said = [node.described() for node in self._nodes]
        with suppress(OSError):  # where the disk is full, the record cannot be written either
            store.write_whole(self._folder / NODES_FILE, json.dumps(said))

    def _close(self) -> None:
        """Ends the remote commands, and with them the agents that are left."""
        for node in self._nodes:
            if node.channel is not None and not node.lost:
                node.channel.close()
            assert node.command.stdin is not None
            with suppress(OSError):
                node.command.stdin.close()
        deadline = time.monotonic() + EXIT_LIMIT_S
        for node in self._nodes:
            with suppress(subprocess.TimeoutExpired):
                node.command.wait(max(0.1, deadline - time.monotonic()))
        if self._listener is not None:
            self._listener.close()
        leftovers.end_run(self._folder, own=self._scratch)
        self._kept.settle()
        for number in range(len(self._nodes)):
            path = self._folder / f"node{number}.err"
            if path.exists() and not path.stat().st_size:
                path.unlink()
