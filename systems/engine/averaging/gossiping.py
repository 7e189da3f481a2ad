"""Gossiping SGD: ranks mix their weights in pairs, without a server and without waiting (dissertation, chapter 3).

    Jin, P.: Learning to Navigate in Visual Environments, UC Berkeley, EECS-2018-169; Algorithms 5 and 6, section 3.6.

Each rank publishes its weights in its own mailbox, where others pull them, or it pushes them: it adds them to another
rank's sum, which that rank reads. A sum and a count stand for all that was pushed, so memory does not grow when a rank
is slow to collect them. A gossip blocks on one question to one rank, for at most `seconds`; with stale weights a thread
asks it while gradients are computed, and `end_update` waits for the rest. `wire/mailbox.py` says what frees it, how it
shuts down, and what happens when a process dies; a rank that is gone is not chosen.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

from rlbench.systems.choices.average import choose_peer
from rlbench.systems.engine.averaging.asynchronous import FINAL, AsynchronousRank
from rlbench.systems.engine.averaging.flat_weights import Weights, from_bytes, to_bytes

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from rlbench.harness.metering.meter import RankMeter
    from rlbench.systems.choices.average import Gossip
    from rlbench.systems.engine.wire.group import Group
    from rlbench.systems.engine.wire.mailbox import Mailbox


def mix_pulled(own: torch.Tensor, other: torch.Tensor, beta: float) -> torch.Tensor:
    """Weights after a pull, [P]: (1 - beta) own + beta other (eq. 3.67; Alg. 5 with beta = 1/2)."""
    return own - beta * (own - other)


def mix_pushed(own: torch.Tensor, total: torch.Tensor, count: int) -> torch.Tensor:
    """Weights after a push, [P]: the mean of the rank's own and the `count` received ones, whose sum is `total`.

    Alg. 6, where a rank also sends to itself.
    """
    return (own + total) / (1 + count)


class Received:
    """The sum and the number of the weights that other ranks have pushed since the last `take`."""

    def __init__(self, like: torch.Tensor) -> None:
        self._lock = threading.Lock()
        self._total, self._count = torch.zeros_like(like), 0

    def put(self, rank: int, data: bytearray) -> bytes:  # noqa: ARG002  it does not matter whose they are
        """Adds the weights that a rank has pushed; called in the mailbox's threads."""
        pushed = from_bytes(data, self._total)
        with self._lock:
            self._total += pushed
            self._count += 1
        return b""

    def take(self) -> tuple[torch.Tensor, int]:
        """Returns the sum, [P], and the number, and sets both back to 0."""
        with self._lock:
            taken = self._total, self._count
            self._total, self._count = torch.zeros_like(self._total), 0
        return taken


class GossipingRank(AsynchronousRank):
    """One rank's gossip; its optimiser's state is its own and never mixed."""

    def __init__(
        self,
        settings: Gossip,
        group: Group,
        meter: RankMeter,
        policy: torch.nn.Module,
        generator: np.random.Generator,
        mailbox: Mailbox,
        received: Received,
    ) -> None:
        super().__init__(group, meter, policy, mailbox)
        self._settings, self._generator, self._received = settings, generator, received
        self._num_updates = 0
        self._executor = group.links.executor(1, "gossip")
        self._exchange_under_way: Future[torch.Tensor | None] | None = None
        self._base = self._weights.get()
        mailbox.publish("weights", to_bytes(self._base))

    def begin_update(self) -> None:
        """With the order `stale`, begins to exchange the weights from before the gradient step (eq. 3.62)."""
        if self._settings.order == "stale" and self._is_due:
            self._base = self._weights.get()
            self._exchange_under_way = self._executor.submit(self._exchange, self._base)

    def end_update(self) -> None:
        """Gossips after the optimiser's step, if a gossip is due."""
        is_due = self._is_due
        self._num_updates += 1
        if not is_due:
            return
        with self._meter.span("communicate"):
            if self._exchange_under_way is None:
                fresh = self._weights.get()
                self._weights.set(self._mix(fresh, self._exchange(fresh)))
            else:
                other, self._exchange_under_way = self._exchange_under_way.result(), None
                # (1 - beta) old + beta other + step, where weights = old + step
                self._weights.set(self._weights.get() + (self._mix(self._base, other) - self._base))

    def final_policy(self) -> bool:
        """Gives the first rank that is still there the mean weights of all that are; True there.

        On the others the policy stays the rank's own. Waits for the ranks that are still in their last iteration.
        """
        with self._meter.span("communicate"):
            total, count = self._weights.get(), 1
            self._mailbox.publish("final", to_bytes(total))
            self._enter(FINAL)
            self._wait_for(FINAL)
            others = self._others
            if any(other < self._group.rank for other in others):
                return False
            for other in others:
                if answer := self._ask_until_gone(other, "final"):
                    total, count = total + from_bytes(answer, total), count + 1
            self._weights.set(total / count)
            return True

    def close(self) -> None:
        """Leaves when all ranks that are still there want to."""
        self._executor.shutdown()
        super().close()

    @property
    def _is_due(self) -> bool:
        """Whether the update that is under way ends in a gossip."""
        return (self._num_updates + 1) % self._settings.interval == 0

    def _exchange(self, own: torch.Tensor) -> torch.Tensor | None:
        """Pushes `own`, [P], to one other rank, or publishes it and pulls that rank's weights, which it returns."""
        peer = choose_peer(self._generator, self._group.rank, self._group.num_ranks, self._mailbox.gone)
        if self._settings.mode == "push":
            if peer is not None:
                self._ask(peer, "push", to_bytes(own))
            return None
        self._mailbox.publish("weights", to_bytes(own))
        answer = self._ask(peer, "weights") if peer is not None else None
        return from_bytes(answer, own) if answer else None

    def _mix(self, own: torch.Tensor, other: torch.Tensor | None) -> torch.Tensor:
        """`own`, [P], mixed with what was pulled (`other`) or pushed here; itself where there is neither."""
        if self._settings.mode == "push":
            return mix_pushed(own, *self._received.take())
        return own if other is None else mix_pulled(own, other, self._settings.beta)


def open_gossip(
    settings: Gossip, group: Group, meter: RankMeter, policy: torch.nn.Module, generator: np.random.Generator
) -> GossipingRank:
    """Makes the averager of a rank, with its mailbox."""
    received = Received(Weights(policy).get())
    mailbox = group.links.mailbox(group, {"push": received.put}, settings.seconds)
    return GossipingRank(settings, group, meter, policy, generator, mailbox, received)
