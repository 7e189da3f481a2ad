"""Makes the averager of one rank from the choice of how ranks agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlbench.systems.choices.average import AllReduce, Central, Elastic, Gossip, ParameterServer
from rlbench.systems.engine.averaging.all_reduce import AllReducer, OneLearner
from rlbench.systems.engine.averaging.clients import DownpourRank, ElasticRank
from rlbench.systems.engine.averaging.gossiping import open_gossip

if TYPE_CHECKING:
    import numpy as np
    import torch

    from rlbench.harness.metering.meter import RankMeter
    from rlbench.systems.choices.average import AverageChoice
    from rlbench.systems.engine.averaging.averager import Averager
    from rlbench.systems.engine.wire.group import Group


def open_averager(
    choice: AverageChoice, group: Group, meter: RankMeter, policy: torch.nn.Module, generator: np.random.Generator
) -> Averager:
    """Makes this rank's averager; all ranks call it, once they have equal weights.

    Args:
        choice: how ranks agree.
        group: the ranks.
        meter: gets waiting and communication as `communicate` spans, and the barrier as `wait:straggler`.
        policy: the ranks agree on its parameters; on its final device.
        generator: this rank's own stream, for whatever is chosen at random.
    """
    match choice:
        case AllReduce():
            return AllReducer(group, meter)
        case Central():
            return OneLearner(group, meter)
        case Elastic():
            return ElasticRank(choice, group, meter, policy)
        case ParameterServer():
            return DownpourRank(choice, group, meter, policy)
        case Gossip():
            return open_gossip(choice, group, meter, policy, generator)
