"""Elastic averaging SGD as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import Elastic
from rlbench.systems.choices.collect import Lockstep
from rlbench.systems.choices.overlap import Alternate
from rlbench.systems.choices.preempt import Never
from rlbench.systems.choices.rollout import Fixed
from rlbench.systems.spec import EngineSystem

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
