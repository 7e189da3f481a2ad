"""HTS-RL as five choices; see README.md beside this file."""

from systems.choices.average import AllReduce
from systems.choices.collect import Dynamic
from systems.choices.overlap import OneAhead
from systems.choices.preempt import Never
from systems.choices.rollout import Fixed
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
