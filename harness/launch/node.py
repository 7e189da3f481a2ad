"""What the head of a run knows of one of its nodes, and how it speaks to the agent there."""

from __future__ import annotations

import select
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.launch.channel import Channel, Closed
from harness.launch.clocks import NodeClock

if TYPE_CHECKING:
    from harness.outcome import Outcome
    from harness.progress import Snapshot


@dataclass(slots=True, kw_only=True)
class Node:
    """What the head knows of a node."""

    number: int
    host: str
    command: subprocess.Popen[bytes]
    ranks: range
    errors: Path
    """What the command that runs the agent has written to stderr."""
    poll: select.poll
    """Of the head, which hears of the node there."""
    clock: NodeClock = field(default_factory=NodeClock)
    channel: Channel | None = None
    hello: dict[str, Any] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    outcome: Outcome | None = None
    ended_at: float = 0.0
    lost: str | None = None
    """How, if it was lost."""
    has_sent: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"node {self.number} ({self.host})"

    @property
    def is_done(self) -> bool:
        """Nothing more is to come from it."""
        return self.outcome is not None or self.lost is not None

    def send(self, kind: str, **fields: Any) -> None:
        """Tells the agent something, if it is there; one that does not take it is lost."""
        if self.channel is not None and not self.lost:
            try:
                self.channel.send(kind, **fields)
            except Closed as closed:
                self.lose(str(closed))

    def lose(self, how: str) -> None:
        """The node is gone: it can neither be told nor asked anything any more."""
        said = self.last_line()
        self.lost = f"{how}; its command said: {said}" if said else how
        if self.channel is not None:
            self.poll.unregister(self.channel)
            self.channel.close()

    def last_line(self) -> str:
        """Of what its command has written to stderr."""
        with suppress(OSError):
            lines = self.errors.read_text(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def described(self) -> dict[str, Any]:
        """What the record is to know of it."""
        return {
            "host": self.hello.get("host", self.host),
            "first_rank": self.ranks.start,
            "num_ranks": len(self.ranks),
            "clock": asdict(self.clock.shift()) if self.clock.num_samples else None,
            "machine": self.hello.get("machine", {}),
            "lost": self.lost,
        }
