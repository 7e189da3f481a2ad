"""SyncOnRL as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import AllReduce
from rlbench.systems.choices.collect import Lockstep
from rlbench.systems.choices.overlap import Alternate
from rlbench.systems.choices.preempt import Never
from rlbench.systems.choices.rollout import Fixed
from rlbench.systems.spec import EngineSystem

SPEC = EngineSystem(
    name="sync",
    about="SyncOnRL: all step together, all learn together",
    collect=Lockstep(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Never(),
    average=AllReduce(),
)
