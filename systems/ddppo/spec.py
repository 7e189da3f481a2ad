"""DD-PPO as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import AllReduce
from rlbench.systems.choices.collect import Lockstep
from rlbench.systems.choices.overlap import Alternate
from rlbench.systems.choices.preempt import Threshold
from rlbench.systems.choices.rollout import Fixed
from rlbench.systems.spec import EngineSystem

SPEC = EngineSystem(
    name="ddppo",
    about="DD-PPO: stragglers are cut when most have finished",
    collect=Lockstep(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Threshold(p=0.6),
    average=AllReduce(),
)
