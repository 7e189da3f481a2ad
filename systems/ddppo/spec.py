"""DD-PPO as five choices; see README.md beside this file."""

from systems.choices.average import AllReduce
from systems.choices.collect import Lockstep
from systems.choices.overlap import Alternate
from systems.choices.preempt import Threshold
from systems.choices.rollout import Fixed
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
