"""Gossiping SGD as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import Gossip
from rlbench.systems.choices.collect import Dynamic
from rlbench.systems.choices.overlap import Alternate
from rlbench.systems.choices.preempt import Never
from rlbench.systems.choices.rollout import Fixed
from rlbench.systems.spec import EngineSystem

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
