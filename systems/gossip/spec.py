"""Gossiping SGD as five choices; see README.md beside this file."""

from systems.engine.dynamic import Dynamic
from systems.engine.gossip import Gossip
from systems.engine.overlap import Alternate
from systems.engine.preempt import Never
from systems.engine.rollout import Fixed
from systems.spec import EngineSystem

SPEC = EngineSystem(
    name="gossip",
    about="gossiping SGD: ranks mix weights in pairs, without a server and without waiting",
    collect=Dynamic(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Never(),
    average=Gossip(mode="pull"),
    learn={"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.5},
)
