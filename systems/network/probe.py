"""Times messages between ranks, sent as the systems send theirs; `rlbench doctor --network` runs it.

Every rank blocks in an all-reduce until all have reached it. While a pair sends messages, the other ranks wait at the
next broadcast or barrier. The other ranks free them; if one dies, this raises here as in any system. Rank 0 writes what
it found into the run's folder.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed

from rlbench.systems.engine.wire.group import Group

if TYPE_CHECKING:
    from rlbench.harness.contract.device import Place
    from rlbench.harness.contract.system import Context

FILE = "network.json"
SIZES = tuple(4 ** (1 + k) for k in range(13))
"""Bytes of a message, from 4 bytes to 64 MiB."""
ROUNDS, WARM_UP = (3, 50), 2
"""Rounds of one size, at least and at most; and rounds before them that are not counted."""
SIZE_S = 0.5
"""About how many seconds one size is measured."""
LONGEST_S = 2.0
"""If a round takes longer than this, no larger message is tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkProbe:
    """All-reduces over all ranks, and messages from rank 0 to the last one and back."""

    name: str = "network"
    about: str = "times messages between ranks"
    in_step = True

    def run(self, context: Context) -> None:
        """Measures on this rank. Raises ValueError if it is the only rank."""
        place = context.place
        if place.num_ranks < 2:
            raise ValueError("doctor --network: needs at least 2 GPUs")
        if context.device.torch_name != "cpu":
            torch.cuda.set_device(context.device.torch_name)
        group = Group(place)
        found = {
            "num_ranks": place.num_ranks,
            "all_reduce": _measure(context, _all_reduce),
            "point_to_point": [
                {**row, "seconds": row["seconds"] / 2, "least_s": row["least_s"] / 2}
                for row in _measure(context, partial(_to_and_fro, place))
            ],
        }
        if place.rank == 0:
            (Path(context.folder) / FILE).write_text(json.dumps(found, indent=1), encoding="utf-8")
        group.close()


Messages = Callable[[torch.Tensor, int], Iterator[None]]
"""Sends a message a given number of times, and yields after each."""


def _all_reduce(message: torch.Tensor, rounds: int) -> Iterator[None]:
    for _ in range(rounds):
        distributed.all_reduce(message)
        yield


def _to_and_fro(place: Place, message: torch.Tensor, rounds: int) -> Iterator[None]:
    """Sends a message from rank 0 to the last rank and back.

    Gloo sends at once if it knows that the receiver waits; otherwise it asks first, and the message takes three trips
    instead of one. So each of the two ranks posts its receive before it sends the message that the other answers. NCCL
    does not ask, and runs one operation after the other.
    """
    last = place.num_ranks - 1
    if place.rank not in {0, last}:
        yield from [None] * rounds
        return
    other = last - place.rank
    if message.is_cuda:
        order = (distributed.send, distributed.recv)
        for _ in range(rounds):
            for act in order if place.rank == 0 else reversed(order):
                act(message, other)
            yield
        return
    came = torch.empty_like(message)
    coming = _await(came, other)
    for left in reversed(range(rounds)):
        if place.rank == 0:
            distributed.send(message, other)
        coming.wait()
        if left:
            coming = _await(came, other)
        if place.rank == last:
            distributed.send(message, other)
        yield


def _await(message: torch.Tensor, rank: int) -> distributed.Work:
    coming = distributed.irecv(message, rank)
    assert coming is not None, "this rank is of the group"
    return coming


def _measure(context: Context, messages: Messages) -> list[dict[str, float]]:
    """A row for each size: bytes, the number of rounds, and the median and least seconds of a round on this rank."""
    device = context.device.torch_name
    rows: list[dict[str, float]] = []
    for size in SIZES:
        message = torch.ones(size // 4, device=device)
        warm = _time(messages, message, WARM_UP)
        # Rank 0 decides for all, so that every rank does the same number of rounds.
        told = torch.tensor([SIZE_S / warm[-1], warm[-1]], dtype=torch.float64, device=device)
        distributed.broadcast(told, src=0)
        rounds, one_s = told.tolist()
        took = _time(messages, message, int(min(max(rounds, ROUNDS[0]), ROUNDS[1])))
        rows.append({"bytes": size, "seconds": statistics.median(took), "least_s": min(took), "rounds": len(took)})
        if one_s > LONGEST_S:
            break
    distributed.barrier()
    return rows


def _time(messages: Messages, message: torch.Tensor, rounds: int) -> list[float]:
    """Seconds of each round, back to back; one more round before them, which ranks begin apart, is left out."""
    ends = []
    for _ in messages(message, 1 + rounds):
        if message.is_cuda:
            torch.cuda.synchronize()
        ends.append(time.perf_counter())
    return [end - begin for begin, end in pairwise(ends)]


PROBE = NetworkProbe()
