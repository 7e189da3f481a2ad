"""What tests of averaging share: a quadratic to minimise, mailboxes in one process, ranks of which some are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlbench.harness.contract.device import Place
from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.average import AverageChoice
from rlbench.systems.engine.averaging.averager import Averager
from rlbench.systems.engine.averaging.opening import open_averager
from rlbench.systems.engine.wire.group import Group
from rlbench.systems.engine.wire.links import Links
from rlbench.systems.engine.wire.mailbox import Handler
from rlbench.systems.engine.wire.sockets import Answer
from rlbench.systems.policies.normalizing import Normalizer
from tests.systems.engine import ranks

ALONE = Place(rank=0, num_ranks=1, local_rank=0)


class Quadratic(torch.nn.Module):
    """f(theta) = 1/2 sum_k curvature_k theta_k^2; the policy of these tests, in double precision."""

    def __init__(self, start: list[float], curvature: list[float]) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
        self.curvature = torch.tensor(curvature, dtype=torch.float64)

    def update(
        self, averager: Averager, optimizer: torch.optim.Optimizer, noise: torch.Tensor | float = 0.0
    ) -> torch.Tensor:
        """One update of a rank, with noise, [P], on its gradient; returns the gradient that it stepped on."""
        averager.begin_update()
        self.theta.grad = self.curvature * self.theta.detach() + noise
        averager.average_gradients(self.parameters())
        gradient = self.theta.grad.clone()
        optimizer.step()
        averager.end_update()
        return gradient


class Observing(Quadratic):
    """A quadratic with statistics of observations beside it, in double precision as well."""

    def __init__(self, start: list[float], curvature: list[float]) -> None:
        super().__init__(start, curvature)
        self.normalizer = Normalizer(1).double()

    def have(self, mean: float, variance: float) -> None:
        """Sets the statistics."""
        with torch.no_grad():
            self.normalizer.mean.fill_(mean)
            self.normalizer.variance.fill_(variance)

    @property
    def statistics(self) -> list[float]:
        """Mean and variance."""
        return [self.normalizer.mean.item(), self.normalizer.variance.item()]


def meter_in(folder: Path, rank: int = 0) -> RankMeter:
    """A meter of a rank without environments."""
    return RankMeter(folder, rank, 0)


def sgd(policy: torch.nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Plain SGD."""
    return torch.optim.SGD(policy.parameters(), lr=learning_rate)


class Office:
    """The mailboxes of some ranks in one process, without sockets or threads."""

    def __init__(self, num_ranks: int) -> None:
        self.published: list[dict[str, bytes]] = [{} for _ in range(num_ranks)]
        self.handlers: list[Mapping[str, Handler]] = [{} for _ in range(num_ranks)]

        self.desks: dict[int, Desk] = {}

    def group(self, rank: int) -> Group:
        """A rank whose mailbox is here; what it would do in a thread is done at once."""
        return group_of(rank, len(self.published), mailbox=self.mailbox, executor=AtOnce)

    def mailbox(self, group: Group, handlers: Mapping[str, Handler], *_: object, **__: object) -> Desk:
        """Takes the place of `Mailbox`."""
        self.handlers[group.rank] = handlers
        self.desks[group.rank] = Desk(self, group.rank)
        return self.desks[group.rank]


class Desk:
    """One rank's mailbox in an `Office`."""

    def __init__(self, office: Office, rank: int) -> None:
        self._office, self._rank = office, rank
        self.gone: frozenset[int] = frozenset()
        self.lost_answers = 0
        """So many of the next answers do not arrive, though the questions do."""

    def publish(self, name: str, value: bytes) -> None:
        """As a mailbox does."""
        self._office.published[self._rank][name] = value

    def ask(self, rank: int, name: str, payload: bytes = b"") -> Answer | None:
        """As a mailbox does."""
        handler = self._office.handlers[rank].get(name)
        answer = handler(self._rank, bytearray(payload)) if handler else self._office.published[rank].get(name, b"")
        if self.lost_answers:
            self.lost_answers -= 1
            return None
        return answer

    def close(self) -> None:
        """As a mailbox does."""


class Apart:
    """Stands in for what connects ranks: those of one process share counters, and each sums up its own alone."""

    def __init__(self) -> None:
        self.store = self
        self.counts: Counter[str] = Counter()
        self.num_sums = 0

    def add(self, key: str, amount: int) -> int:
        """As the store does."""
        self.counts[key] += amount
        return self.counts[key]

    def delete_key(self, key: str) -> None:
        """As the store does."""
        del self.counts[key]

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Leaves the tensor as it is, and counts."""
        del tensor
        self.num_sums += 1


def group_of(rank: int, num_ranks: int, between: Apart | None = None, **stand_ins: Any) -> Group:
    """A rank among others that are not processes, with what is `between` them."""
    transport = between or Apart()
    links = Links(transport=lambda _: transport, **stand_ins)  # type: ignore[arg-type]  # it needs no more
    return Group(Place(rank=rank, num_ranks=num_ranks, local_rank=rank), links=links)


def run_losing(function: Callable[[Path], None], num_ranks: int, lost: int, folder: Path) -> dict[int, str]:
    """Calls a function of a module with `folder` on every rank, where rank `lost` kills or stops itself.

    Returns what each other rank has printed, once all of those have ended; raises AssertionError unless they ended
    well, and TimeoutExpired if they did not end.
    """
    processes = ranks.start_ranks(ranks.words_for(function, folder), num_ranks)
    try:
        outputs = {
            rank: process.communicate(timeout=ranks.LIMIT_S)[0].decode()
            for rank, process in enumerate(processes)
            if rank != lost
        }
    finally:
        for process in processes:
            process.close()
    assert not any(processes[rank].returncode for rank in outputs), outputs
    return outputs


class AtOnce:
    """An executor without a thread: in one process nobody else changes weights meanwhile."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[[torch.Tensor], object], argument: torch.Tensor) -> Future[object]:
        done: Future[object] = Future()
        done.set_result(function(argument))
        return done


def open_averagers(
    settings: AverageChoice, policies: Sequence[Quadratic], meter: RankMeter, seed: int = 0
) -> tuple[list[Averager], Office]:
    """The averagers of some ranks in one process, and their mailboxes."""
    office = Office(len(policies))
    averagers = [
        open_averager(settings, office.group(rank), meter, policy, np.random.default_rng([seed, rank]))
        for rank, policy in enumerate(policies)
    ]
    return averagers, office
