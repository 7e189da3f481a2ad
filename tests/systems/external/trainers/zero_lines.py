"""Plays for ever in whatever environment it is told the id of, at most 3,000 steps a second: no line is rlbench's.

A quick machine plays 25,000: a budget of some thousand would be spent between two looks of whoever counts, and nothing
be left to measure a rate of.
"""

import sys
import time

import gymnasium

env = gymnasium.make(sys.argv[1])
env.reset(seed=1)
while True:
    time.sleep(0.0003)
    _, _, terminated, truncated, _ = env.step(env.action_space.sample())
    if terminated or truncated:
        env.reset()
