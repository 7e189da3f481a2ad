"""The agent on a node of a run: this module, started there by the head's `--remote` command.

It reads one line of JSON from stdin: where the head listens, the run's secret, the node's number. Then it takes the
runner's place on its machine: it makes a folder for the node's part of the run on a local disk, starts a keeper in it,
samples the machine, and tells the head every `TELL_S` how far the node is. When the keeper has ended, or the head says
so, the agent ends what is left of the run here, sends the node's files to the head, and removes the folder.

The agent blocks in one `poll` on the head's connection, on stdin and on the keeper's end; any of them frees it. The end
of stdin or of the connection means that the head is gone: the run ends here too. If the agent is killed, its keeper's
stdin ends, and the keeper ends its ranks. If all of the node's processes are killed, the head sees its connection end.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.devices.kinds import gpu_indices, visible_gpus
from rlbench.harness.launch.nodes.channel import LARGEST_DATA, Channel, Closed, Message
from rlbench.harness.launch.nodes.launches import NodeSeat, address_of, interface_towards, listen
from rlbench.harness.machine import machine
from rlbench.harness.machine.telemetry import PERIOD_S, Telemetry
from rlbench.harness.metering.live import LiveMeters
from rlbench.harness.plan.cells import Cell
from rlbench.harness.processes import leftovers, process, scratch
from rlbench.harness.processes.held import CELL_FILE, Held
from rlbench.harness.processes.outcome import Outcome
from rlbench.harness.processes.removal import (
    OTHERS_ENTER,
    inside,
    is_ours_alone,
    open_lock,
    opened_folder,
    remove_folder,
)
from rlbench.harness.processes.scratch import Scratch
from rlbench.harness.processes.shared_memory import Before

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_LIMIT_S = 20.0
WELCOME_LIMIT_S = 600.0
"""Seconds that the head has for its next message: it looks at all nodes first, and some may start late."""
TELL_S = 0.5
END_LIMIT_S = 10.0
KEPT_HERE = (CELL_FILE, "traits.json", "node.json", "gpu*.bin", "outcome.json", ".*", scratch.FILE)
"""Files that are not sent, since they are of no use elsewhere."""
TELEMETRY_FILE = "telemetry.json"
PREFIX, LOCK = "rlb-node-", ".agent"
"""Name prefix of the folder of a node's part, and the file in it that its agent has locked for as long as it lives."""


def describe() -> dict[str, Any]:
    """The versions and the code that must be the same on all nodes."""
    return {"python": platform.python_version(), "source": source_digest(), **machine.packages()}


def source_digest() -> str:
    """A hash of rlbench's installed code and profiles; two commits of the same version differ in it."""
    root = Path(__file__).resolve().parents[3]
    digest = hashlib.sha256()
    for package in ("harness", "systems", "scenarios", "results"):
        for path in sorted(path for path in (root / package).rglob("*") if path.suffix in {".py", ".toml"}):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def remove_stale() -> None:
    """Removes folders and shared memory left here by agents that were killed with all their processes."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError), opened_folder(folder) as descriptor:  # it is gone by now, or no agent's folder
            if is_ours_alone(descriptor, OTHERS_ENTER):
                _remove_unlocked(folder, descriptor)


def _remove_unlocked(folder: Path, descriptor: int) -> None:
    """Removes an agent's folder. Raises OSError while that agent lives."""
    lock = open_lock(LOCK, dir_fd=descriptor, create=False)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        leftovers.remove_files(inside(descriptor))
        remove_folder(folder, descriptor)
    finally:
        os.close(lock)


class Agent:
    """One node's part of one run."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._node, self._secret = int(told["node"]), str(told["secret"])
        head = (str(told["address"]), int(told["port"]))
        self._interface = str(told["interface"]) or interface_towards(head[0])
        self._address = address_of(self._interface)
        self._head = Channel(socket.create_connection(head, CONNECT_LIMIT_S))
        self._store: socket.socket | None = None
        self._poll = select.poll()
        self._is_over = False
        self._scratch: Scratch | None = None

    def serve(self) -> None:
        """Runs the node's part to its end. Raises Closed when the head is gone."""
        self._head.send(
            "hello",
            secret=self._secret,
            node=self._node,
            host=socket.gethostname(),
            address=self._address,
            alike=describe(),
            machine=machine.describe(),
            num_gpus=len(visible_gpus()),
        )
        self._poll.register(self._head, select.POLLIN)
        self._poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
        while not self._is_over and (message := self._await(WELCOME_LIMIT_S)):
            match message.kind:
                case "listen":
                    self._store = listen(self._address)
                    self._head.send("listening", port=self._store.getsockname()[1])
                case "start":
                    self._run(message.fields)
                case "end":
                    return

    def _await(self, limit_s: float) -> Message | None:
        """The head's next message that is no ping; None when stdin has ended or none comes within the limit."""
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            if message := self._head.receive(0.0):
                if not self._is_ping(message):
                    return message
                continue
            if any(fd == sys.stdin.fileno() for fd, _ in self._poll.poll(min(left_s, 1.0) * 1000)):
                return None
        return None

    def _is_ping(self, message: Message) -> bool:
        """Answers a ping at once, with this machine's clock."""
        if message.kind != "ping":
            return False
        self._head.send("pong", number=message.fields["number"], at_s=time.perf_counter())
        return True

    def _run(self, told: dict[str, Any]) -> None:
        remove_stale()
        unlocked = Path(tempfile.mkdtemp(prefix="rlb-new-"))
        lock = open_lock(unlocked / LOCK)
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = unlocked.rename(unlocked.with_name(unlocked.name.replace("rlb-new-", PREFIX)))
        held = Held(folder)
        try:
            (folder / CELL_FILE).write_text(told["cell"], encoding="utf-8")
            (folder / "traits.json").write_text(told["traits"], encoding="utf-8")
            NodeSeat(**told["seat"], interface=self._interface).leave(folder)
            outcome = self._keep_cell(Cell.from_json(told["cell"]), folder, told)
            self._head.send("outcome", **asdict(outcome))
            message = self._await(WELCOME_LIMIT_S)
            if message is not None and message.kind == "collect":
                self._send_files(folder)
            else:
                self._is_over = True
        finally:
            leftovers.end_run(folder, own=self._scratch)
            if self._scratch is not None:
                self._scratch.remove_elsewhere()
            held.follow([folder])  # if the keeper has made it anew there
            held.remove([folder])
            held.close()
            os.close(lock)

    def _keep_cell(self, cell: Cell, folder: Path, told: dict[str, Any]) -> Outcome:
        """Runs the node's part of a cell, if the cell is the same here as where it was planned."""
        try:
            if cell.hash() != told["hash"]:
                reason = f"{cell.scenario} is another one here: is it a file that differs between the nodes?"
                return Outcome("failed", reason)
            _, scenario = cell.load()
            before = Before.now(scenario)
        except ValueError as error:  # a profile that is not here
            return Outcome("failed", str(error))
        self._scratch = Scratch.make(folder, before)
        return self._keep(cell, folder, self._scratch.path, range(*told["ranks"]))

    def _keep(self, cell: Cell, folder: Path, tmpdir: Path, ranks: range) -> Outcome:
        """Starts the keeper, tells the head how far the node is, and leaves no process behind."""
        fds = [self._store.fileno()] if self._store else []
        with (folder / "keeper.err").open("wb") as err:
            keeper = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-P", "-m", "rlbench.harness.run.keeper", str(folder)],
                stdin=subprocess.PIPE,
                stdout=err,
                stderr=err,
                start_new_session=True,
                pass_fds=fds,
                env={
                    **os.environ,
                    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                    "TMPDIR": str(tmpdir),
                    **({process.STORE_VARIABLE: str(fds[0])} if fds else {}),
                },
            )
        if self._store:
            self._store.close()  # it is the keeper's now
            self._store = None
        telemetry = Telemetry(keeper.pid, PERIOD_S, gpu_indices(cell.device, len(ranks)))
        try:
            self._tell(keeper, LiveMeters(folder, ranks))  # until the keeper ends, or is to end
            self._head.send("ending")
        finally:
            process.end_keeper(keeper, END_LIMIT_S)
            telemetry.stop()
            leftovers.end_run(folder, own=self._scratch)
        left = {"rows": telemetry.rows, "num_gpus": telemetry.num_gpus, "problem": telemetry.problem}
        (folder / TELEMETRY_FILE).write_text(json.dumps(left), encoding="utf-8")
        how = f"the keeper of the node {process.how_it_ended(keeper.returncode)}"
        return Outcome.read(folder) or Outcome("failed", how, (folder / "keeper.err").read_text("utf-8", "replace"))

    def _tell(self, keeper: subprocess.Popen[bytes], meters: LiveMeters) -> None:
        """Tells the head how far the node is; returns when the keeper has ended, or is to end."""
        end = os.pidfd_open(keeper.pid)
        self._poll.register(end, select.POLLIN)
        next_s = 0.0
        try:
            while keeper.poll() is None:
                if time.monotonic() >= next_s:
                    self._head.send("live", **asdict(meters.read()))
                    next_s = time.monotonic() + TELL_S
                while message := self._head.receive(0.0):
                    if not self._is_ping(message):
                        return  # it is `end`: the head sends nothing else while a run goes on
                ready = {fd for fd, _ in self._poll.poll(max(0.0, next_s - time.monotonic()) * 1000)}
                if sys.stdin.fileno() in ready:
                    return
        finally:
            self._poll.unregister(end)
            os.close(end)

    def _send_files(self, folder: Path) -> None:
        """Sends the files that the node's processes have left, one after the other, in pieces."""
        for path in _files_of(folder):
            with path.open("rb") as file:
                while piece := file.read(LARGEST_DATA):
                    self._head.send("file", piece, name=path.name)
        self._head.send("sent")


def _files_of(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.is_symlink() and not any(path.match(kept) for kept in KEPT_HERE):
            yield path


def main() -> int:
    """Serves the head that wrote to stdin; returns the exit code."""
    process.adopt_orphans()
    process.leave_to_others(signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    line = sys.stdin.readline()
    if not line:
        return 1
    try:
        Agent(json.loads(line)).serve()
    except (Closed, OSError, ValueError) as error:
        print(f"{socket.gethostname()}: {error}", file=sys.stderr)  # noqa: T201  the head reads it
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
