"""VER as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import AllReduce
from rlbench.systems.choices.collect import Dynamic
from rlbench.systems.choices.overlap import Alternate
from rlbench.systems.choices.preempt import Optimal
from rlbench.systems.choices.rollout import Variable
from rlbench.systems.spec import EngineSystem

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
