"""APPO as five choices; see README.md beside this file."""

from rlbench.systems.choices.average import Central
from rlbench.systems.choices.collect import DoubleBuffered
from rlbench.systems.choices.overlap import Continuous
from rlbench.systems.choices.preempt import Never
from rlbench.systems.choices.rollout import Trajectories
from rlbench.systems.spec import EngineSystem

SPEC = EngineSystem(
    name="appo",
    about="Sample Factory: collecting and learning go on side by side",
    collect=DoubleBuffered(),
    rollout=Trajectories(num_steps=32, batch=2048),
    overlap=Continuous(),
    preempt=Never(),
    average=Central(),
    learn={
        "correct": "vtrace",
        "epochs": 1,
        "num_minibatches": 1,
        "clip": 0.1,
        "clip_low": 1 / 1.1,
        "adam_eps": 1e-6,
        "entropy_coef": 0.003,
        "max_grad_norm": 4.0,
    },
)
