"""DD-PPO as five choices; see README.md beside this file."""

from systems.engine.average import AllReduce
from systems.engine.collect import Lockstep
from systems.engine.overlap import Alternate
from systems.engine.preempt import Threshold
from systems.engine.rollout import Fixed
from systems.spec import EngineSystem

SPEC = EngineSystem(
    name="ddppo",
    about="DD-PPO: stragglers are cut when most have finished",
    collect=Lockstep(),
    rollout=Fixed(),
    overlap=Alternate(),
    preempt=Threshold(p=0.6),
    average=AllReduce(),
)
