"""VER as five choices; see README.md beside this file."""

from systems.engine.average import AllReduce
from systems.engine.dynamic import Dynamic
from systems.engine.optimal import Optimal
from systems.engine.overlap import Alternate
from systems.engine.variable import Variable
from systems.spec import EngineSystem

SPEC = EngineSystem(
    name="ver",
    about="variable experience rollouts, stragglers cut at the best moment",
    collect=Dynamic(),
    rollout=Variable(),
    overlap=Alternate(),
    preempt=Optimal(fill_stale=True),
    average=AllReduce(),
    learn={"correct": "truncated_is"},
)
