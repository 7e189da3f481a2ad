"""How ranks agree on weights: the settings of each way, and the decisions that need no weights and no processes.

    AllReduce         gradients are averaged over all ranks before every optimiser step (DD-PPO eq. 4)
    Central           one learner for all ranks (Sample Factory section 3.1; on several GPUs as VER section 5.1 ran it)
    Elastic           each rank and a centre pull at each other
    ParameterServer   ranks send sums of gradients to a server (Downpour)
    Gossip            ranks mix their weights in pairs

The last three follow Jin, P.: Learning to Navigate in Visual Environments, UC Berkeley, EECS-2018-169; section 3.2,
Algorithms 3 and 4; section 3.6, Algorithms 5 and 6. `systems/engine/averaging/` carries them all out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    import numpy as np

PLACEMENTS = ("separate", "together")
MODES = ("pull", "push")
ORDERS = ("fresh", "stale")


@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduce:
    """Gradients are averaged over all ranks before every optimiser step (DD-PPO eq. 4)."""

    survives_lost_rank: ClassVar[bool] = False
    """Whether the run goes on when the process of a rank is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Central:
    """One learner for all ranks."""

    placement: str = "separate"
    """Where environments render: `separate` from learning and inference, or `together` with them on all ranks."""

    survives_lost_rank: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the field."""
        if self.placement not in PLACEMENTS:
            raise ValueError(f"average.placement={self.placement}: must be one of: {', '.join(PLACEMENTS)}")


def rendering_rank(env: int, rank: int, ranks: range, placement: str) -> int:
    """The rank on whose device an environment renders.

    Args:
        env: index of the environment, counted over all ranks of the machine.
        rank: the rank to which the environment belongs.
        ranks: the ranks of the machine.
        placement: `separate` leaves rank 0's device to learning and inference, and deals the environments of its
            machine to the other devices there (VER section 5.1). With `together`, and on other machines, environments
            render on their own rank's device.
    """
    if placement == "separate" and 0 in ranks and len(ranks) > 1:
        return ranks[1 + env % (len(ranks) - 1)]
    return rank


@dataclass(frozen=True, kw_only=True, slots=True)
class Elastic:
    """Every `interval` updates a rank moves towards the centre, and the centre by as much towards the rank (Alg. 4)."""

    survives_lost_rank: ClassVar[bool] = True

    interval: int = 1
    """Updates between two exchanges with the centre, tau."""
    beta: float = 0.0
    """The moving rate; 0 stands for the dissertation's 0.8 / ranks (section 3.4, Methodology)."""
    seconds: float = 2.0
    """Time limit of one exchange; an exchange that fails is skipped."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.interval < 1:
            raise ValueError(f"average.interval={self.interval}: must be at least 1")
        if not 0 <= self.beta <= 1:
            raise ValueError(f"average.beta={self.beta}: must be above 0 and at most 1, or 0 for 0.8 / ranks")
        if not self.seconds > 0:
            raise ValueError(f"average.seconds={self.seconds}: must be above 0")


def moving_rate(beta: float, num_ranks: int) -> float:
    """The moving rate that the setting `beta` stands for."""
    return beta or 0.8 / num_ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterServer:
    """Every `interval` updates a rank sends the sum of its gradients and gets the server's weights (Alg. 3)."""

    survives_lost_rank: ClassVar[bool] = True

    interval: int = 1
    """Updates between two exchanges with the server, tau."""
    learning_rate: float = 0.01
    """The server's step size, alpha, for every sum of gradients that a rank sends."""
    momentum: float = 0.9
    """The server's momentum, mu."""
    seconds: float = 2.0
    """Time limit of one exchange; an exchange that fails is skipped."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.interval < 1:
            raise ValueError(f"average.interval={self.interval}: must be at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"average.learning_rate={self.learning_rate}: must be above 0")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"average.momentum={self.momentum}: must be at least 0 and below 1")
        if not self.seconds > 0:
            raise ValueError(f"average.seconds={self.seconds}: must be above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gossip:
    """Each rank steps on its own gradients and mixes its weights with those of one other rank at a time."""

    survives_lost_rank: ClassVar[bool] = True

    mode: str = "pull"
    """`pull`: fetch the weights of one rank (Alg. 5). `push`: send to one, and average all that arrived (Alg. 6)."""
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


AverageChoice = AllReduce | Central | Elastic | ParameterServer | Gossip
