"""Elastic averaging SGD as five choices; see README.md beside this file."""

from systems.engine.collect import Lockstep
from systems.engine.elastic import Elastic
from systems.engine.overlap import Alternate
from systems.engine.preempt import Never
from systems.engine.rollout import Fixed
from systems.spec import EngineSystem

SPEC = EngineSystem(
    name="easgd",
    about="elastic averaging SGD: ranks and a centre on rank 0 pull at each other, without waiting",
    collect=Lockstep(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Never(),
    average=Elastic(),
    learn={"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.5},
)
