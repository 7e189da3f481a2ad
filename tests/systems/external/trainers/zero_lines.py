"""Plays for ever in whatever environment it is told the id of: no line is rlbench's."""

import sys

import gymnasium

env = gymnasium.make(sys.argv[1])
env.reset(seed=1)
while True:
    _, _, terminated, truncated, _ = env.step(env.action_space.sample())
    if terminated or truncated:
        env.reset()
