"""NoVER as five choices; see README.md beside this file."""

from systems.choices.average import AllReduce
from systems.choices.collect import Dynamic
from systems.choices.overlap import Alternate
from systems.choices.preempt import Optimal
from systems.choices.rollout import Fixed
from systems.spec import EngineSystem

SPEC = EngineSystem(
    name="nover",
    about="VER with T steps of every environment",
    collect=Dynamic(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Optimal(),
    average=AllReduce(),
)
