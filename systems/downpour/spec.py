"""Downpour SGD as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import ParameterServer
from rlbench.systems.choices.collect import Lockstep
from rlbench.systems.choices.overlap import Alternate
from rlbench.systems.choices.preempt import Never
from rlbench.systems.choices.rollout import Fixed
from rlbench.systems.spec import EngineSystem

SPEC = EngineSystem(
    name="downpour",
    about="Downpour SGD: ranks send gradients to a parameter server on rank 0, without waiting for each other",
    collect=Lockstep(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Never(),
    average=ParameterServer(learning_rate=0.1, momentum=0.9),
    learn={"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.1},
)
