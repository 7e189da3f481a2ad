"""VER as five choices; see README.md beside this file."""

from systems.choices.average import AllReduce
from systems.choices.collect import Dynamic
from systems.choices.overlap import Alternate
from systems.choices.preempt import Optimal
from systems.choices.rollout import Variable
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
