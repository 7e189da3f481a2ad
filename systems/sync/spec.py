"""SyncOnRL as five choices; see README.md beside this file."""

from systems.engine.average import AllReduce
from systems.engine.collect import Lockstep
from systems.engine.overlap import Alternate
from systems.engine.preempt import Never
from systems.engine.rollout import Fixed
from systems.spec import EngineSystem

SPEC = EngineSystem(
    name="sync",
    about="SyncOnRL: all step together, all learn together",
    collect=Lockstep(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Never(),
    average=AllReduce(),
)
