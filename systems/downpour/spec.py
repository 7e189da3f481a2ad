"""Downpour SGD as five choices; see README.md beside this file."""

from systems.engine.collect import Lockstep
from systems.engine.overlap import Alternate
from systems.engine.parameter_server import ParameterServer
from systems.engine.preempt import Never
from systems.engine.rollout import Fixed
from systems.spec import EngineSystem

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
