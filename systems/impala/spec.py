"""IMPALA as five choices; see README.md beside this file."""

from systems.engine.actor_side import ActorSide
from systems.engine.continuous import Continuous
from systems.engine.one_learner import Central
from systems.engine.preempt import Never
from systems.engine.trajectories import Trajectories
from systems.spec import EngineSystem

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
