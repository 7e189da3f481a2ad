"""NoVER as five choices; see README.md beside this file."""

from systems.engine.average import AllReduce
from systems.engine.dynamic import Dynamic
from systems.engine.optimal import Optimal
from systems.engine.overlap import Alternate
from systems.engine.rollout import Fixed
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
