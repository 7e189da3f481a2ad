"""HTS-RL as five choices; see README.md beside this file."""

from systems.engine.average import AllReduce
from systems.engine.dynamic import Dynamic
from systems.engine.overlap import OneAhead
from systems.engine.preempt import Never
from systems.engine.rollout import Fixed
from systems.spec import EngineSystem

SPEC = EngineSystem(
    name="htsrl",
    about="HTS-RL: learns one rollout behind",
    collect=Dynamic(),
    rollout=Fixed(),
    overlap=OneAhead(),
    preempt=Never(),
    average=AllReduce(),
)
