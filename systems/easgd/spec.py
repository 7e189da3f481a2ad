"""Elastic averaging SGD as five choices; see README.md beside this file."""

from systems.choices.average import Elastic
from systems.choices.collect import Lockstep
from systems.choices.overlap import Alternate
from systems.choices.preempt import Never
from systems.choices.rollout import Fixed
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
