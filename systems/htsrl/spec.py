"""HTS-RL as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import AllReduce
from rlbench.systems.choices.collect import Dynamic
from rlbench.systems.choices.overlap import OneAhead
from rlbench.systems.choices.preempt import Never
from rlbench.systems.choices.rollout import Fixed
from rlbench.systems.spec import EngineSystem

SPEC = EngineSystem(
    name="htsrl",
    about="HTS-RL: learns one rollout behind",
    collect=Dynamic(),
    rollout=Fixed(),
    overlap=OneAhead(),
    preempt=Never(),
    average=AllReduce(),
)
