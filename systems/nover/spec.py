"""NoVER as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import AllReduce
from rlbench.systems.choices.collect import Dynamic
from rlbench.systems.choices.overlap import Alternate
from rlbench.systems.choices.preempt import Optimal
from rlbench.systems.choices.rollout import Fixed
from rlbench.systems.spec import EngineSystem

SPEC = EngineSystem(
    name="nover",
    about="VER with T steps of every environment",
    collect=Dynamic(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Optimal(),
    average=AllReduce(),
)
