"""IMPALA as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import Central
from rlbench.systems.choices.collect import ActorSide
from rlbench.systems.choices.overlap import Continuous
from rlbench.systems.choices.preempt import Never
from rlbench.systems.choices.rollout import Trajectories
from rlbench.systems.spec import EngineSystem

SPEC = EngineSystem(
    name="impala",
    about="IMPALA: the policy acts in the workers",
    collect=ActorSide(),
    rollout=Trajectories(num_steps=32, batch=2048),
    overlap=Continuous(),
    preempt=Never(),
    average=Central(),
    learn={"correct": "vtrace", "epochs": 1, "num_minibatches": 1},
)
