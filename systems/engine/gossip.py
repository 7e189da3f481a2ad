"""What gossip is, and whom a rank gossips with: settings and pure functions; `gossiping.py` does it.

Jin, P.: Learning to Navigate in Visual Environments, UC Berkeley, EECS-2018-169; Algorithms 5 and 6, section 3.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    import numpy as np
    import torch

    from harness.metering.meter import RankMeter
    from systems.engine.average import Averager
    from systems.engine.wire.group import Group

MODES = ("pull", "push")
ORDERS = ("fresh", "stale")


def choose_peer(generator: np.random.Generator, rank: int, num_ranks: int, gone: AbstractSet[int]) -> int | None:
    """The rank to gossip with, uniformly one of the others that are not gone; None when there is none."""
    missing = sorted({rank, *gone})
    num_others = num_ranks - len(missing)
    if num_others == 0:
        return None
    peer = int(generator.integers(num_others))
    for other in missing:  # the peer-th of the others, without a list of all of them
        peer += peer >= other
    return peer


def mix_pulled(own: torch.Tensor, other: torch.Tensor, beta: float) -> torch.Tensor:
    """Weights after a pull, [P]: (1 - beta) own + beta other (eq. 3.67; Alg. 5 with beta = 1/2)."""
    return own - beta * (own - other)


def mix_pushed(own: torch.Tensor, total: torch.Tensor, count: int) -> torch.Tensor:
    """Weights after a push, [P]: the mean of the rank's own and the `count` received ones, whose sum is `total`.

    Alg. 6, where a rank also sends to itself.
    """
    return (own + total) / (1 + count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gossip:
    """Each rank steps on its own gradients and mixes its weights with those of one other rank at a time."""

    survives_lost_rank: ClassVar[bool] = True

    mode: str = "pull"
    """`pull`: fetch the weights of one rank (Alg. 5). `push`: send to one, average all that came (Alg. 6)."""
    interval: int = 1
    """Updates between two gossips, tau; the dissertation used 1 and 10 (section 3.4, Methodology)."""
    beta: float = 0.5
    """Weight of the other rank's weights in a pull; a push averages evenly."""
    order: str = "fresh"
    """`fresh`: gradient step, then gossip (eq. 3.65-3.67). `stale`: both at once (eq. 3.61-3.62)."""
    seconds: float = 2.0
    """Time limit of one message; a rank that does not answer is skipped."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.mode not in MODES:
            raise ValueError(f"average.mode={self.mode}: must be one of: {', '.join(MODES)}")
        if self.interval < 1:
            raise ValueError(f"average.interval={self.interval}: must be at least 1")
        if not 0 < self.beta <= 1:
            raise ValueError(f"average.beta={self.beta}: must be above 0 and at most 1")
        if self.mode == "push" and self.beta != 0.5:
            raise ValueError(
                f"average.beta={self.beta}: a push averages evenly; leave it out, or use average.mode=pull"
            )
        if self.order not in ORDERS:
            raise ValueError(f"average.order={self.order}: must be one of: {', '.join(ORDERS)}")
        if not self.seconds > 0:
            raise ValueError(f"average.seconds={self.seconds}: must be above 0")

    def open(self, group: Group, meter: RankMeter, policy: torch.nn.Module, generator: np.random.Generator) -> Averager:
        """Makes the averager of this rank."""
        from systems.engine.averaging.gossiping import open_gossip  # imports torch, which naming a system must not

        return open_gossip(self, group, meter, policy, generator)
