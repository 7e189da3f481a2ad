"""Rank 0 as host of the weights that all ranks share: what elastic averaging and the parameter server have in common.

Every rank, rank 0 included, writes through questions that rank 0's mailbox answers one at a time, under a lock. Each
rank reads the shared weights in the answer. An exchange blocks on one question, for at most `seconds`; a rank that gets
no answer goes on with its own weights and asks again at the next exchange. `wire/mailbox.py` says what frees it and how
it shuts down. If rank 0's process dies, or stays silent, every other rank raises; another rank's death only stops its
contributions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from rlbench.systems.engine.averaging.asynchronous import FINAL, AsynchronousRank
from rlbench.systems.engine.averaging.flat_weights import Weights, from_bytes, to_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlbench.harness.metering.meter import RankMeter
    from rlbench.systems.engine.wire.group import Group

SERVER = 0

Serve = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Takes the shared weights, [P], which it updates in place, and what a rank sent, [P]; returns the answer, [P]."""


class SharedWeights:
    """The weights that rank 0 keeps for all ranks; other ranks have such an object too, but nobody asks it."""

    def __init__(self, initial: torch.Tensor, serve: Serve) -> None:
        self._lock = threading.Lock()
        self._weights, self._serve = initial.clone(), serve

    def answer(self, rank: int, data: bytearray) -> bytes:  # noqa: ARG002  all ranks are served alike
        """Answers one exchange with a rank; called in the mailbox's threads, and for rank 0 itself in its own."""
        sent = from_bytes(data, self._weights)
        with self._lock:
            return to_bytes(self._serve(self._weights, sent))

    def get(self) -> torch.Tensor:
        """A copy of the shared weights, [P]."""
        with self._lock:
            return self._weights.clone()


class ClientRank(AsynchronousRank):
    """A rank that exchanges with rank 0 before every `interval`-th update; a subclass says what."""

    def __init__(
        self, group: Group, meter: RankMeter, policy: torch.nn.Module, serve: Serve, interval: int, seconds: float
    ) -> None:
        self._shared = SharedWeights(Weights(policy).get(), serve)
        mailbox = group.links.mailbox(group, {"exchange": self._shared.answer}, seconds, vital=frozenset({SERVER}))
        super().__init__(group, meter, policy, mailbox)
        self._interval, self._num_updates = interval, 0

    def begin_update(self) -> None:
        """Exchanges when t > 0 and t = 0 mod tau (Alg. 3 and 4)."""
        if self._num_updates > 0 and self._num_updates % self._interval == 0:
            with self._meter.span("communicate"):
                self._exchange()

    def end_update(self) -> None:
        """Counts the update."""
        self._num_updates += 1

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:
        """`own` plus what was last heard from each other rank; raises RuntimeError when rank 0 is gone."""
        total = super().agree(own, num_lasting)
        self._check_server()
        return total

    def final_policy(self) -> bool:
        """Gives rank 0's policy the shared weights, once all ranks have sent what they had; True there."""
        with self._meter.span("communicate"):
            self._enter(FINAL)
            self._wait_for(FINAL)
            self._check_server()
            if self._group.rank != SERVER:
                return False
            self._weights.set(self._shared.get())
            return True

    def _exchange(self) -> None:
        raise NotImplementedError

    def _ask_server(self, sent: torch.Tensor) -> torch.Tensor | None:
        """The server's answer to `sent`, [P] both; None when none came in time."""
        answer = self._ask(SERVER, "exchange", to_bytes(sent))
        if answer is None:
            self._check_server()
            return None
        return from_bytes(answer, sent)

    def _check_server(self) -> None:
        if SERVER in self._mailbox.gone:
            raise RuntimeError(f"the parameter server (rank {SERVER}) is gone")
