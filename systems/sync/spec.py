"""SyncOnRL as five choices; see README.md beside this file."""

from systems.choices.average import AllReduce
from systems.choices.collect import Lockstep
from systems.choices.overlap import Alternate
from systems.choices.preempt import Never
from systems.choices.rollout import Fixed
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
