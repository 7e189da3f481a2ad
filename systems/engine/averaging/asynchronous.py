"""What all asynchronous averagers share: progress, the end of the run, and leaving it.

Each rank publishes one vector in its own mailbox: its phase, what it has to agree on, and a sketch of its weights.
Every other rank reads it at the end of each of its own iterations. What it last heard of a rank still counts when that
rank is slow, and in part when it is gone. A question blocks for at most the mailbox's limit. At the very end
`final_policy` and `close` block until all ranks that are still there have come as far, or `LEAVE_LIMIT_S` has passed; a
rank that falls silent frees them too. If a process dies the others go on; `wire/mailbox.py` says how they notice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from rlbench.systems.engine.averaging.flat_weights import Sketch, Weights, consensus_distance

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from numpy.typing import NDArray

    from rlbench.harness.metering.meter import RankMeter
    from rlbench.systems.engine.wire.group import Group
    from rlbench.systems.engine.wire.mailbox import Mailbox

RUNNING, OVER, FINAL, LEAVING = 0.0, 1.0, 2.0, 3.0
Phase = float
LEAVE_LIMIT_S = 600.0
"""Seconds for which a rank that answers, yet never ends its last iteration, holds the others up."""
POLL_S = 0.05


class AsynchronousRank:
    """The part of an averager that agrees on progress; subclasses agree on weights."""

    is_synchronous = False

    def __init__(self, group: Group, meter: RankMeter, policy: torch.nn.Module, mailbox: Mailbox) -> None:
        self._group, self._meter, self._mailbox = group, meter, mailbox
        self._weights = Weights(policy)
        self._sketch = Sketch(self._weights.get().numel())
        self._phase = RUNNING
        self._own = np.zeros(0)
        self._own_sketch = np.zeros(0)
        self._heard: dict[int, NDArray[np.float64]] = {}
        self._num_asked = self._num_lost = 0

    def begin_update(self) -> None:
        """Nothing, unless a subclass has something to do."""

    def sum_moments(self, moments: torch.Tensor) -> torch.Tensor:
        """Those of this rank: its gradients stay its own."""
        return moments

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Gradients stay the rank's own."""

    def end_update(self) -> None:
        """Nothing, unless a subclass has something to do."""

    def wait_for_ranks(self, *, broke_off: bool) -> bool:
        """Waits for nobody."""
        return broke_off

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:
        """`own` plus what was last heard from each other rank; waits for no slow one."""
        with self._meter.span("communicate"):
            self._own, self._own_sketch = own.copy(), self._sketch.of(self._weights.learned())
            self._publish_progress()
            self._listen()
            total = own.copy()
            gone = self._mailbox.gone
            for rank, vector in self._progress.items():
                counted = num_lasting if rank in gone else len(own)
                total[:counted] += vector[1 : 1 + counted]
            return total

    def is_over(self, own: bool) -> bool:
        """Whether this rank, or one that it heard in the last `agree`, says that the run is over."""
        if not (own or any(vector[0] >= OVER for vector in self._heard.values())):
            return False
        with self._meter.span("communicate"):
            self._enter(OVER)
        return True

    def statistics(self) -> dict[str, float]:
        """Consensus distance of the ranks still there (`flat_weights.py`), ranks lost, share of messages lost."""
        known = self._progress
        sketches = [known[rank][1 + len(self._own) :] for rank in self._others if rank in known]
        return {
            "consensus_distance": consensus_distance([self._own_sketch, *sketches]) if sketches else 0.0,
            "ranks_lost": float(len(self._mailbox.gone)),
            "messages_lost_fraction": self._num_lost / max(1, self._num_asked),
        }

    def close(self) -> None:
        """Leaves when all ranks that are still there want to."""
        with self._meter.span("communicate"):
            self._mailbox.is_quiet = True
            self._enter(LEAVING)
            self._wait_for(LEAVING)
        self._mailbox.close()
        self._group.leave()

    @property
    def _progress(self) -> dict[int, NDArray[np.float64]]:
        """What was last heard of each rank that has ended an iteration; before that, a rank says its phase alone."""
        return {rank: vector for rank, vector in self._heard.items() if len(vector) > 1}

    @property
    def _others(self) -> list[int]:
        """The other ranks that are not gone."""
        gone = self._mailbox.gone
        return [rank for rank in range(self._group.num_ranks) if rank != self._group.rank and rank not in gone]

    def _ask(self, rank: int, name: str, payload: bytes = b"") -> bytes | bytearray | None:
        """Asks a question about weights, and counts it."""
        answer = self._mailbox.ask(rank, name, payload)
        if answer is not None:
            self._group.note_exchange(rank)
        self._num_asked += 1
        self._num_lost += answer is None
        return answer

    def _ask_until_gone(self, rank: int, name: str) -> bytes | bytearray | None:
        """Asks a question again for as long as no answer comes in time; None when the rank is gone."""
        while (answer := self._ask(rank, name)) is None and rank not in self._mailbox.gone:
            pass  # each try takes at most the mailbox's limit
        return answer

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._publish_progress()

    def _publish_progress(self) -> None:
        self._mailbox.publish("progress", np.concatenate([[self._phase], self._own, self._own_sketch]).tobytes())

    def _listen(self) -> None:
        for rank in self._others:
            if answer := self._mailbox.ask(rank, "progress"):
                self._heard[rank] = np.frombuffer(answer)

    def _wait_for(self, phase: Phase) -> None:
        """Waits until every rank that is not gone has entered the phase, for `LEAVE_LIMIT_S` at most."""
        deadline = time.monotonic() + LEAVE_LIMIT_S
        while time.monotonic() < deadline:
            self._listen()
            if all(rank in self._heard and self._heard[rank][0] >= phase for rank in self._others):
                return
            time.sleep(POLL_S)
