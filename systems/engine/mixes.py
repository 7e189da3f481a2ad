"""Which choices do not go together, why, and the nearest mix that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from systems.engine.actor_side import ActorSide
from systems.engine.continuous import Continuous
from systems.engine.one_learner import Central
from systems.engine.overlap import OneAhead
from systems.engine.preempt import Never
from systems.engine.trajectories import Trajectories
from systems.engine.variable import Variable

if TYPE_CHECKING:
    from systems.engine.average import Average
    from systems.engine.collect import Collector
    from systems.engine.overlap import Alternate
    from systems.engine.preempt import PreemptChoice
    from systems.engine.rollout import RolloutChoice


def why_impossible(
    collect: Collector,
    rollout: RolloutChoice,
    overlap: Alternate | OneAhead | Continuous,
    preempt: PreemptChoice,
    average: Average,
) -> str | None:
    """None, or why these five choices make no system, with the nearest that do."""
    preempts = not isinstance(preempt, Never)
    name = type(preempt).__name__.lower()
    fills = type(rollout).__name__.lower()
    rules = (
        (
            isinstance(overlap, Continuous) and preempts,
            f"overlap=continuous with preempt={name}",
            "ranks that never stop collecting have no stragglers to cut",
            "preempt=never, or overlap=alternate",
        ),
        (
            isinstance(overlap, Continuous) and not isinstance(rollout, Trajectories),
            f"overlap=continuous with rollout={fills}",
            "what never ends has no rollout to fill",
            "rollout=trajectories, or overlap=oneahead",
        ),
        (
            isinstance(average, Central) and preempts,
            f"average=central with preempt={name}",
            "one rank collects for all, so there are no ranks to cut",
            "preempt=never, or average=allreduce",
        ),
        (
            isinstance(rollout, Trajectories) and preempts,
            f"rollout=trajectories with preempt={name}",
            "a batch is complete or it is not learned",
            "rollout=variable, or preempt=never",
        ),
        (
            isinstance(collect, ActorSide) and preempts,
            f"collect=actorside with preempt={name}",
            "actors send whole trajectories, which cannot be cut",
            "preempt=never, or collect=dynamic",
        ),
        (
            isinstance(collect, ActorSide) and isinstance(rollout, Variable),
            "collect=actorside with rollout=variable",
            "an actor must know how many steps it is to play",
            "rollout=trajectories, or collect=dynamic",
        ),
        (
            isinstance(collect, ActorSide) and isinstance(overlap, OneAhead),
            "collect=actorside with overlap=oneahead",
            "actors take the newest weights, not those of one rollout before",
            "overlap=continuous, or collect=dynamic",
        ),
    )
    return next((f"{what}: {why}; nearest: {nearest}" for impossible, what, why, nearest in rules if impossible), None)
