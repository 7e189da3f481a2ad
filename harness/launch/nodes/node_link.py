"""What the head of a run knows of one of its nodes, and how it speaks to the agent there."""

from __future__ import annotations

import select
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.launch.nodes.channel import Channel, Closed
from rlbench.harness.launch.nodes.clocks import NodeClock
from rlbench.harness.processes.outcome import Outcome, is_consequence
from rlbench.harness.processes.process import how_it_ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.harness.metering.live import Snapshot


SILENT_S = 5.0
"""A node that says nothing for this long is lost; its agent tells every half second how far it is."""
START_SILENT_S = 60.0
END_LIMIT_S = 25.0
"""Seconds that a node has to end: its keeper has ten, and what is left is killed after that."""


@dataclass(slots=True, kw_only=True)
class NodeLink:
    """What the head knows of a node."""

    number: int
    host: str
    command: subprocess.Popen[bytes]
    ranks: range
    errors: Path
    """File with what the command that runs the agent has written to stderr."""
    poll: select.poll
    """The head's `poll`, with which it hears from the node."""
    clock: NodeClock = field(default_factory=NodeClock)
    channel: Channel | None = None
    hello: dict[str, Any] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    is_ending: bool = False
    """Whether its keeper has ended, or is to end; the agent clears up, and says nothing meanwhile."""
    outcome: Outcome | None = None
    ended_at: float = 0.0
    lost: str | None = None
    """How it was lost; None if it was not."""
    has_sent: bool = False

    @property
    def name(self) -> str:
        """What people see it called."""
        return f"node {self.number} ({self.host})"

    @property
    def knows_cause(self) -> bool:
        """Whether it was lost, or has ended for another reason than the end of others."""
        if self.lost:
            return True
        return self.outcome is not None and not (self.outcome.is_orderly or is_consequence(self.outcome.reason))

    @property
    def silent_limit_s(self) -> float:
        """Seconds for which it may say nothing."""
        if self.snapshot is None:
            return START_SILENT_S  # it imports what the cell needs
        return END_LIMIT_S if self.is_ending else SILENT_S

    @property
    def is_done(self) -> bool:
        """Whether its part of the run is over: it has said how, or was lost."""
        return self.outcome is not None or self.lost is not None

    def send(self, kind: str, **fields: Any) -> None:
        """Sends the agent a message, if it is connected; a node that does not take it is lost."""
        if self.channel is not None and not self.lost:
            try:
                self.channel.send(kind, **fields)
            except Closed as closed:
                self.lose(str(closed))

    def lose(self, how: str) -> None:
        """Notes that the node is gone, and closes its connection."""
        if self.lost:
            return
        said = self.last_line()
        self.lost = f"{how}; its command said: {said}" if said else how
        if self.channel is not None:
            self.poll.unregister(self.channel)
            self.channel.close()

    def look_at_command(self) -> None:
        """A node whose command ends before its agent has connected is lost."""
        if not self.lost and self.command.poll() is not None:
            how = how_it_ended(self.command.returncode)
            self.lost = f"{self.last_line() or 'its command said nothing'} ({how})"

    def last_line(self) -> str:
        """The last line that its command has written to stderr, if any."""
        with suppress(OSError):
            lines = self.errors.read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def described(self) -> dict[str, Any]:
        """What the record needs to know of it."""
        return {
            "host": self.hello.get("host", self.host),
            "first_rank": self.ranks.start,
            "num_ranks": len(self.ranks),
            "clock": asdict(self.clock.shift()) if self.clock.num_samples else None,
            "machine": self.hello.get("machine", {}),
            "lost": self.lost,
        }


def why_not_alike(nodes: Sequence[NodeLink], own: dict[str, Any]) -> str | None:
    """None, or which node has other software than the first one, whose code must be that of this machine (`own`).

    A figure describes one version.
    """
    first = nodes[0]
    for node in nodes:
        other, whose = (first.hello["alike"], first.name) if node is not first else (own, "this machine")
        for name in ("source", "rlbench") if node is first else sorted(other | node.hello["alike"]):
            mine, theirs = other.get(name), node.hello["alike"].get(name)
            if mine != theirs:
                what = "rlbench's code" if name == "source" else name
                return (
                    f"{node.name} has {what} {theirs or '(none)'} where {whose} has {mine or '(none)'}; install the "
                    "same on all nodes"
                )
    return None


def why_no_room(nodes: Sequence[NodeLink]) -> str | None:
    """None, or which node has fewer GPUs than ranks."""
    for node in nodes:
        num_gpus, num_ranks = int(node.hello["num_gpus"]), len(node.ranks)
        if num_gpus < num_ranks:
            few = f"{node.name} has {num_gpus} NVIDIA GPUs for {num_ranks} ranks"
            return f"{few}; lower --gpus-per-node, or --oversubscribe"
    return None


def decide(nodes: Sequence[NodeLink]) -> Outcome:
    """How a run ends: a lost node is the cause of what the others say; if none was lost, the first that failed is."""
    if lost := [node for node in nodes if node.lost]:
        return Outcome("failed", f"{lost[0].name} was lost: {lost[0].lost}")
    ended = {node.number: node.outcome for node in nodes if node.outcome and node.outcome.status != "finished"}
    if not ended:
        return Outcome("finished")
    # A rank that is told to stop makes all end in good order, so a failure has another cause.
    bad = {number: outcome for number, outcome in ended.items() if not outcome.is_orderly} or ended
    killed = [number for number, outcome in bad.items() if "was killed by" in (outcome.reason or "")]
    # Ranks that raised only because of another rank's end may be seen to end before it.
    causes = [number for number, outcome in bad.items() if not is_consequence(outcome.reason)]
    first = min(killed or causes or bad, key=lambda number: nodes[number].ended_at)
    status = "failed" if bad[first].status == "ended" else bad[first].status  # nobody asks a single node to end
    return Outcome(status, f"{bad[first].reason}; on {nodes[first].name}", bad[first].traceback)
